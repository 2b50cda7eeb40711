//! Runs all examinations of one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use object::{Architecture, File, Object as _};
use sidewinder_bpf::{PackedSegment, Packing, pack};
use sidewinder_unwind::validate::{Validation, validate};
use sidewinder_unwind::{RowSource, UnwindTable, load_segments, unwind_table};
use sidewinder_unwind_oracle::contradiction::Explanation;
use sidewinder_unwind_oracle::{Comparison, ComparisonError, compare, stripped};

/// The result for a file: what was found, or why it has no table.
pub(crate) type Examined = Result<Box<FileFindings>, String>;

/// What was found in a file with a table.
pub(crate) struct FileFindings {
    /// Its rows compared with gimli's.
    pub(crate) rows: Comparison,
    /// The number of its malformed functions.
    pub(crate) malformed: u64,
    /// Its rows compared with its code.
    pub(crate) contradictions: Contradictions,
    /// Its rows compared with those from its code alone. Not for Go programs, which don't keep to the calling
    /// convention that the analysis of code assumes.
    pub(crate) blind: Option<stripped::BlindComparison>,
    pub(crate) architecture: Architecture,
    pub(crate) size: TableSize,
    pub(crate) building: Duration,
}

/// Contradictions between rows and code.
#[derive(Default)]
pub(crate) struct Contradictions {
    pub(crate) rows: u64,
    pub(crate) rows_wrong: u64,
    pub(crate) functions_unresolved: u64,
    pub(crate) explained: BTreeMap<Explanation, u64>,
    /// As text.
    pub(crate) unexplained: Vec<String>,
}

/// The size of a table.
#[derive(Clone, Copy, Default)]
pub(crate) struct TableSize {
    pub(crate) text_bytes: u64,
    pub(crate) table_bytes: u64,
    /// Rows before packing.
    pub(crate) rows: u64,
    pub(crate) row_bytes: u64,
    /// Rules and runs.
    pub(crate) rule_bytes: u64,
}

pub(crate) fn file(path: &Path) -> Examined {
    let data = fs::read(path).map_err(|_| "not readable".to_owned())?;
    let (table, rows) = compare(&data).map_err(|error| match error {
        ComparisonError::Elf(_) => "not a readable ELF file".to_owned(),
        ComparisonError::Unwind(why) => why.to_string(),
    })?;
    let file = File::parse(&*data).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let _ = unwind_table(&file);
    let building = began.elapsed();
    let validation = validate(&file, &table).map_err(|error| error.to_string())?;
    let is_go = table.summary().functions.contains_key(&RowSource::GoPclntab)
        || file.section_by_name(".go.buildinfo").is_some();
    let blind = (!is_go).then(|| stripped::compare(&data, &table, &validation.mismatches)).flatten();
    Ok(Box::new(FileFindings {
        rows,
        malformed: table.summary().malformed_total(),
        contradictions: Contradictions::from_validation(&validation),
        blind,
        architecture: file.architecture(),
        size: TableSize::from_table(&file, &table),
        building,
    }))
}

impl Contradictions {
    fn from_validation(validation: &Validation) -> Self {
        let mut found = Self {
            rows: validation.rows,
            rows_wrong: validation.rows_wrong,
            functions_unresolved: validation.functions_unresolved,
            ..Self::default()
        };
        for mismatch in &validation.mismatches {
            match Explanation::from_mismatch(mismatch) {
                Some(explanation) => *found.explained.entry(explanation).or_default() += 1,
                None => found.unexplained.push(mismatch.to_string()),
            }
        }
        found
    }
}

impl TableSize {
    fn from_table(file: &File<'_>, table: &UnwindTable) -> Self {
        const ROW_BYTES: usize = 2;
        const RULE_BYTES: usize = 16;
        let loads = load_segments(file);
        let code = || loads.iter().filter(|load| load.executable);
        let segments: Vec<_> = code().flat_map(|load| pack(table, load, Packing::Auto)).collect();
        let sum = |part: fn(&PackedSegment) -> usize| segments.iter().map(part).sum::<usize>() as u64;
        Self {
            text_bytes: code().map(|load| load.size).sum(),
            table_bytes: sum(|segment| segment.bytes.len()),
            rows: table.len() as u64,
            row_bytes: sum(|segment| segment.rows * ROW_BYTES),
            rule_bytes: sum(|segment| (segment.rules + segment.runs) * RULE_BYTES),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.text_bytes += other.text_bytes;
        self.table_bytes += other.table_bytes;
        self.rows += other.rows;
        self.row_bytes += other.row_bytes;
        self.rule_bytes += other.rule_bytes;
    }

    /// Bytes of the table for each of the text.
    pub(crate) fn share(&self) -> f64 {
        self.table_bytes as f64 / self.text_bytes.max(1) as f64
    }

    /// The size of rows, rules and the index, in percent of the text.
    pub(crate) fn parts(&self) -> [f64; 3] {
        let index_bytes = self.table_bytes.saturating_sub(self.row_bytes + self.rule_bytes);
        [self.row_bytes, self.rule_bytes, index_bytes]
            .map(|part| 100.0 * part as f64 / self.text_bytes.max(1) as f64)
    }
}
