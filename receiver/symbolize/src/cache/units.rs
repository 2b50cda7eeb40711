//! The tables of units of debug information, within a byte budget.

use super::bounded::ByteBoundedLru;
use crate::dwarf::{UnitTable, UnitTables};
use crate::names::BinaryId;

/// The tables of units of debug information.
#[derive(Debug)]
pub(super) struct UnitCache(pub(super) ByteBoundedLru<(BinaryId, u32), UnitTable>);

impl UnitCache {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self(ByteBoundedLru::new(budget_bytes))
    }
}

/// The units of one file.
pub(super) struct FileUnitCache<'a> {
    pub(super) file: BinaryId,
    pub(super) units: &'a mut UnitCache,
    pub(super) cut: u64,
}

impl UnitTables for FileUnitCache<'_> {
    fn with<T>(
        &mut self,
        unit: u32,
        read: impl FnOnce(usize) -> UnitTable,
        look: impl FnOnce(&UnitTable) -> T,
    ) -> T {
        let key = (self.file, unit);
        if let Some(table) = self.units.0.get(&key) {
            return look(table);
        }
        let table = read(self.units.0.budget_bytes / 2);
        self.cut += table.cut;
        let seen = look(&table);
        let bytes = table.heap_bytes();
        self.units.0.put(key, table, bytes);
        seen
    }
}
