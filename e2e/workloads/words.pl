# Counts words with regular expressions and sorts them. Usage: perl words.pl SECONDS
use strict;
my $deadline = times + $ARGV[0];
sub letters { my ($seed, $left) = @_; return $left ? chr(97 + $seed % 26) . letters($seed * 31 % 65537, $left - 1) : ' '; }
while (times < $deadline) {
    my ($text, %seen) = (join '', map { letters($_, 3 + $_ % 7) } 1 .. 500);
    $seen{$1}++ while $text =~ /([aeiou]*[^aeiou ]+)[a-z]*/g;
    my @sorted = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
}
