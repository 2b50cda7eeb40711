# Trees, hashes and blocks, for some seconds: jruby rounds.rb SECONDS.
finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[0].to_i
class Tree
  def initialize(depth)
    @value = depth
    @left, @right = Tree.new(depth - 1), Tree.new(depth - 1) if depth > 0
  end

  def sum
    @value + (@left ? @left.sum + @right.sum : 0)
  end
end
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
  Tree.new(10).sum
  counts = Hash.new(0)
  3000.times { |number| counts["key #{number % 71}"] += number }
  counts.sort_by { |_, count| -count }.map { |key, count| "#{key}: #{count}" }.join(",")
  (1..300).map { |number| number.to_s.reverse.to_i }.select(&:even?).sum
end
