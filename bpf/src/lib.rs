//! Sidewinder's kernel side: the eBPF programs, their loader, and the maps through which the receiver speaks to them.
