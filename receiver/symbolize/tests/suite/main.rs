//! Tests of the crate's public API, on files built here and on real ones.
#[cfg(test)]
mod cache;
#[cfg(test)]
mod companions;
#[cfg(test)]
mod elf;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod large;
#[cfg(test)]
mod lines;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod symbol_files;
#[cfg(test)]
mod symbols;
