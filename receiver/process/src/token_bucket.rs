//! A rate limit.

/// Allows a number of operations per second, which accumulate for at most one second.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: u32,
    tokens: u32,
    refilled_at_ns: u64,
}

impl TokenBucket {
    /// A full bucket: the first second's operations are available at once.
    pub(crate) const fn new(per_second: u32, now_ns: u64) -> Self {
        Self { per_second, tokens: per_second, refilled_at_ns: now_ns }
    }

    /// Takes as many tokens as are requested and available now.
    pub(crate) fn take(&mut self, wanted: usize, now_ns: u64) -> u32 {
        let per_second = u64::from(self.per_second.max(1));
        let earned = now_ns.saturating_sub(self.refilled_at_ns).saturating_mul(per_second) / 1_000_000_000;
        if earned > 0 {
            self.tokens = u32::try_from(u64::from(self.tokens).saturating_add(earned).min(per_second))
                .unwrap_or(u32::MAX);
            self.refilled_at_ns += earned.saturating_mul(1_000_000_000) / per_second;
        }
        let taken = self.tokens.min(u32::try_from(wanted).unwrap_or(u32::MAX));
        self.tokens -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_one_second_at_most() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut allowance = TokenBucket::new(10, 0);
        assert_eq!(allowance.take(25, 0), 10);
        assert_eq!(allowance.take(25, SECOND_NS / 4), 2);
        assert_eq!(allowance.take(25, SECOND_NS / 2), 3);
        assert_eq!(allowance.take(3, 60 * SECOND_NS), 3);
        assert_eq!(allowance.take(25, 60 * SECOND_NS), 7);
    }
}
