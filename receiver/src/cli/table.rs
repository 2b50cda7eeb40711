//! What the command line says of tables of functions.

use clap::{ArgGroup, Args, ValueEnum};
use sidewinder_render::{DEFAULT_ROWS, FunctionOrder, InlinedFunctions, TableOptions};

#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// The maximum number of functions in a table
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    rows: Option<u32>,
    /// Sort functions by self or total
    ///
    /// The default is total for waits, which all end in the same few functions, and self otherwise.
    #[arg(long, value_name = "COLUMN", hide_possible_values = true, hide_short_help = true)]
    sort: Option<SortArg>,
    /// Which inlined functions get rows: all, own or none
    ///
    /// The others are folded into the function that they were inlined into; `own` folds those of standard libraries, such as
    /// `core::ptr::write`.
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "all",
        hide_possible_values = true,
        hide_short_help = true
    )]
    inlines: InlinesArg,
}

/// These options, of a command that prints a table only with `--table`.
pub(super) fn layout_of_table() -> ArgGroup {
    ArgGroup::new("table_layout").args(["rows", "sort", "inlines"]).multiple(true).requires("table")
}

impl TableArgs {
    /// The options of a table in so many columns.
    pub(crate) fn options(&self, columns: usize, is_coloured: bool) -> TableOptions {
        TableOptions { rows: self.rows().unwrap_or(DEFAULT_ROWS), order: self.order(), columns, is_coloured }
    }

    /// The most rows; `None` if there is no limit.
    pub(crate) fn rows(&self) -> Option<usize> {
        self.rows.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// The requested order.
    pub(crate) fn order(&self) -> Option<FunctionOrder> {
        self.sort.map(|sort| match sort {
            SortArg::SelfCount => FunctionOrder::SelfCount,
            SortArg::TotalCount => FunctionOrder::TotalCount,
        })
    }

    pub(crate) fn inlined(&self) -> InlinedFunctions {
        match self.inlines {
            InlinesArg::All => InlinedFunctions::All,
            InlinesArg::Own => InlinedFunctions::Own,
            InlinesArg::None => InlinedFunctions::None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SortArg {
    #[value(name = "self")]
    SelfCount,
    #[value(name = "total")]
    TotalCount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum InlinesArg {
    /// Every inlined function
    All,
    /// The program's, but not standard libraries'
    Own,
    /// None
    None,
}
