//! The identity with which a process opens files, and what file modes let it read.

use crate::procfs::{ProcessDir, ProcfsError};

/// At most this much of `/proc/PID/status` is read: a process may be in 65,536 groups (capabilities(7), credentials(7)).
const STATUS_BYTES: u64 = 1 << 20;
/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH` as bits of a set: with either, a process may read and search despite modes.
const READ_ANYTHING: u64 = 1 << 1 | 1 << 2;

/// The access that is requested to a file or a directory, as the bits that a mode has for each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    /// For a directory: to look up a name in it.
    Search,
}

/// The owner, group and mode of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) mode: u32,
}

/// The identity with which a process opens files. All IDs are those of our own user namespace.
///
/// It is read from `/proc`; nothing is ever opened under another identity, which would require `CAP_SETUID`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The file system user and group.
    user: u32,
    group: u32,
    supplementary_groups: Box<[u32]>,
    /// Whether modes don't apply to it, for files whose owner and group are in its user namespace.
    reads_anything: bool,
    users: IdMap,
    groups: IdMap,
}

impl Credentials {
    /// The credentials of a living process.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn read(process: &ProcessDir) -> Result<Self, ProcfsError> {
        let status = process.read_at_most("status", STATUS_BYTES)?;
        let (users, groups) = (process.read("uid_map")?, process.read("gid_map")?);
        Self::parse(&status, IdMap::parse(&users), IdMap::parse(&groups))
            .map_err(|missing| ProcfsError::Malformed { pid: process.pid(), path: "status", missing })
    }

    /// Parses `/proc/PID/status` (proc_pid_status(5)). An error names the first field that is missing.
    fn parse(status: &[u8], users: IdMap, groups: IdMap) -> Result<Self, &'static str> {
        let field = |name: &'static str| {
            let line =
                status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()));
            line.and_then(|value| str::from_utf8(value).ok()).ok_or(name)
        };
        // Real, effective, saved, file system.
        let last =
            |name| field(name)?.split_ascii_whitespace().nth(3).and_then(|id| id.parse().ok()).ok_or(name);
        let supplementary_groups = field("Groups:")?.split_ascii_whitespace().map(str::parse);
        let effective = u64::from_str_radix(field("CapEff:")?.trim(), 16).map_err(|_| "CapEff:")?;
        Ok(Self {
            user: last("Uid:")?,
            group: last("Gid:")?,
            supplementary_groups: supplementary_groups.collect::<Result<_, _>>().map_err(|_| "Groups:")?,
            reads_anything: effective & READ_ANYTHING != 0,
            users,
            groups,
        })
    }

    /// Whether a user is the process's own, root, or root of its user namespace: users that control it anyway.
    pub(crate) fn trusts(&self, user: u32) -> bool {
        user == self.user || self.is_root(user)
    }

    /// Whether a user is root, or root of the process's user namespace.
    pub(crate) fn is_root(&self, user: u32) -> bool {
        user == 0 || self.users.root() == Some(user)
    }

    /// Whether the process may read a file or search a directory. `has_acl` says whether an access control list may revoke
    /// access that the mode grants to group and others. Such a list is not evaluated: access that it may deny is denied.
    ///
    /// Source: `generic_permission` in `fs/namei.c`. Security modules are not considered: they can only deny more.
    pub(crate) fn allows(&self, access: Access, of: Ownership, has_acl: impl FnOnce() -> bool) -> bool {
        let wanted = match access {
            Access::Read => 0o4,
            Access::Search => 0o1,
        };
        if self.reads_anything && self.users.contains(of.user) && self.groups.contains(of.group) {
            return true;
        }
        if of.user == self.user {
            return of.mode >> 6 & wanted != 0;
        }
        let is_member = of.group == self.group || self.supplementary_groups.contains(&of.group);
        let class = if is_member { of.mode >> 3 } else { of.mode };
        class & wanted != 0 && !has_acl()
    }
}

/// `/proc/PID/uid_map` or `gid_map` (user_namespaces(7)): which of our IDs are mapped into a process's user namespace.
///
/// When read from the initial user namespace, the second column contains our IDs. eBPF is not allowed in any other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct IdMap(Vec<IdRange>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdRange {
    inside: u32,
    outside: u32,
    count: u32,
}

impl IdMap {
    /// Malformed lines are skipped: they map no IDs.
    fn parse(map: &[u8]) -> Self {
        let range = |line: &[u8]| {
            let mut numbers = str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(IdRange { inside: next()?, outside: next()?, count: next()? })
        };
        Self(map.split(|&byte| byte == b'\n').filter_map(range).collect())
    }

    fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|range| id.checked_sub(range.outside).is_some_and(|offset| offset < range.count))
    }

    /// The ID that is 0 inside the namespace.
    fn root(&self) -> Option<u32> {
        self.0.iter().find(|range| range.inside == 0 && range.count > 0).map(|range| range.outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ALL: &[u8] = b"         0          0 4294967295\n";
    const OF_CONTAINER: &[u8] = b"         0     100000      65536\n";

    fn credentials(user: u32, effective: &str, map: &[u8]) -> Credentials {
        let status = format!(
            "Name:\tx\\nUid:\t0\nUid:\t1\t1\t1\t{user}\nGid:\t9\t9\t9\t{user}\nGroups:\t50 60 \nCapEff:\t{effective}\n"
        );
        Credentials::parse(status.as_bytes(), IdMap::parse(map), IdMap::parse(map)).unwrap()
    }

    fn owned(user: u32, group: u32, mode: u32) -> Ownership {
        Ownership { user, group, mode: mode | 0o100_000 }
    }

    const NO_ACL: fn() -> bool = || false;

    #[test]
    fn the_first_class_that_a_process_is_in_decides() {
        let app = credentials(1000, "0000000000000000", OF_ALL);
        for (of, is_readable) in [
            (owned(1000, 7, 0o400), true),
            (owned(1000, 7, 0o044), false),
            (owned(7, 1000, 0o040), true),
            (owned(7, 60, 0o040), true),
            (owned(7, 60, 0o404), false),
            (owned(7, 7, 0o004), true),
            (owned(7, 7, 0o770), false),
            (owned(0, 0, 0o600), false),
        ] {
            assert_eq!(app.allows(Access::Read, of, NO_ACL), is_readable, "{of:?}");
        }
        assert!(app.allows(Access::Search, owned(0, 0, 0o711), NO_ACL));
        assert!(!app.allows(Access::Search, owned(0, 0, 0o744), NO_ACL));
    }

    #[test]
    fn what_an_access_control_list_may_deny_is_denied() {
        let app = credentials(1000, "0000000000000000", OF_ALL);
        assert!(!app.allows(Access::Read, owned(7, 7, 0o004), || true));
        assert!(app.allows(Access::Read, owned(1000, 7, 0o400), || true), "no list binds the owner");
    }

    #[test]
    fn capabilities_reach_as_far_as_the_user_namespace() {
        let root = credentials(0, "000001ffffffffff", OF_ALL);
        assert!(root.allows(Access::Read, owned(7, 7, 0o000), || true));
        let bare_root = credentials(0, "0000000000000000", OF_ALL);
        assert!(!bare_root.allows(Access::Read, owned(7, 7, 0o600), NO_ACL));
        let contained = credentials(100_000, "000001ffffffffff", OF_CONTAINER);
        assert!(contained.allows(Access::Read, owned(165_535, 100_000, 0o000), NO_ACL));
        for of in [owned(0, 0, 0o600), owned(100_000, 0, 0o000), owned(165_536, 100_000, 0o600)] {
            assert!(!contained.allows(Access::Read, of, NO_ACL), "{of:?}");
        }
    }

    #[test]
    fn only_its_own_user_and_root_are_trusted() {
        let contained = credentials(101_000, "0000000000000000", OF_CONTAINER);
        for (user, is_trusted) in
            [(101_000, true), (100_000, true), (0, true), (1000, false), (101_001, false)]
        {
            assert_eq!(contained.trusts(user), is_trusted, "{user}");
        }
    }

    #[test]
    fn what_is_no_status_names_what_is_missing() {
        let parse = |status: &[u8]| Credentials::parse(status, IdMap::default(), IdMap::default());
        assert_eq!(parse(b"Name:\tx\n"), Err("Groups:"));
        assert_eq!(parse(b"Groups:\t\nCapEff:\t0\nUid:\t1\t1\t1\n"), Err("Uid:"));
        assert_eq!(IdMap::parse(b"0 1\nx y z\n"), IdMap::default());
    }

    #[test]
    fn our_own_credentials_let_us_read_what_we_may() {
        let own = Credentials::read(&ProcessDir::own().unwrap()).unwrap();
        assert!(own.trusts(rustix::process::geteuid().as_raw()));
    }
}
