//! Tables of the busiest functions, as `record` and `view` print them.

use std::io;

use sidewinder_base::exit::Failure;
use sidewinder_base::terminal::supports_colour;
use sidewinder_render::{DisplayNames, NameStyle, Profile, container_table, table, thread_tables};

use super::{print_all, terminal_columns};
use crate::cli::TableArgs;

/// Prints the table of each profile, under its name if there are several, and those of its containers. Folds what
/// [says little](Profile::fold) in tables.
pub(super) fn print_tables(
    profiles: &mut [Profile],
    layout: &TableArgs,
    style: NameStyle,
) -> Result<(), Failure> {
    let options = layout.options(terminal_columns(), supports_colour(&io::stdout()));
    let are_several = profiles.len() > 1;
    for (number, profile) in profiles.iter_mut().enumerate() {
        profile.fold(layout.inlined());
        let profile = &*profile;
        if are_several {
            let blank_line = if number > 0 { "\n" } else { "" };
            print_all(&format!("{blank_line}{}\n", profile.measure.subject()))?;
        }
        let names = DisplayNames::new([profile], style).with_lock_sites([profile]);
        let table = if profile.is_per_thread { thread_tables } else { table };
        print_all(&table(profile, &names, options))?;
        print_all(&container_table(profile, options))?;
    }
    Ok(())
}
