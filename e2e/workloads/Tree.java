// Builds maps of strings, sorts and walks them. Usage: java Tree.java SECONDS
import java.util.*;

public class Tree {
    static List<String> leaves(int depth, int seed) {
        if (depth == 0) return List.of(Integer.toString(seed));
        List<String> all = new ArrayList<>(leaves(depth - 1, seed * 2));
        all.addAll(leaves(depth - 1, seed * 2 + 1));
        return all;
    }

    public static void main(String[] arguments) {
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        long length = 0;
        while (System.nanoTime() < deadline) {
            Map<String, Integer> lengths = new TreeMap<>(Comparator.reverseOrder());
            leaves(8, 1).forEach(leaf -> lengths.merge(leaf, leaf.length(), Integer::sum));
            length += lengths.values().stream().mapToInt(Integer::intValue).sum();
        }
        if (length == 42) System.out.println(length);
    }
}
