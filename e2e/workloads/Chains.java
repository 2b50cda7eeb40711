import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/** Chains of calls whose order is known: MODES SECONDS. Each further mode has a thread of its own. */
public class Chains {
    interface Shape {
        double area(double size);
    }

    static final Shape[] SHAPES = {size -> size * size, size -> 3.14 * size * size, size -> size * 0.5, size -> size + 1};
    static volatile double sink;
    static final Object LOCK = new Object();

    static void first(String mode) throws Exception {
        second(mode);
    }

    static void second(String mode) throws Exception {
        third(mode);
    }

    static void third(String mode) throws Exception {
        switch (mode) {
            case "recursion":
                sink += recurse(30);
                break;
            case "counted":
                sink += counted();
                break;
            case "mixed":
                sink += mixed();
                break;
            case "inlined":
                sink += outer(300);
                break;
            default:
                throw new IllegalArgumentException(mode);
        }
    }

    static long recurse(int left) {
        return left == 0 ? leaf(left) : recurse(left - 1) + 1;
    }

    /** A loop in which threads don't stop, in a method that is put into its caller. */
    static long counted() {
        return work() + 1;
    }

    static long work() {
        long sum = 0;
        for (int i = 0; i < 2_000; i++) {
            sum += i * 31L ^ sum;
        }
        return sum;
    }

    /** What C2 puts into its caller, but for the last. */
    static long outer(int count) {
        long sum = 0;
        for (int i = 0; i < count; i++) {
            sum += middle(i);
        }
        return sum;
    }

    static long middle(int i) {
        return inner(i + 1) + 1;
    }

    static long inner(int i) {
        return innermost(i) * 3;
    }

    static long innermost(int i) {
        return i + leaf(i);
    }

    /** Larger than what is put into callers (-XX:FreqInlineSize: 325 bytes of bytecode). */
    static long leaf(int i) {
        long sum = i;
        for (int j = 0; j < 40; j++) {
            sum = sum * 31L + (sum >>> 3) + j;
            sum = sum * 33L + (sum >>> 4) + j;
            sum = sum * 35L + (sum >>> 5) + j;
            sum = sum * 37L + (sum >>> 6) + j;
            sum = sum * 39L + (sum >>> 7) + j;
            sum = sum * 41L + (sum >>> 8) + j;
            sum = sum * 43L + (sum >>> 9) + j;
            sum = sum * 45L + (sum >>> 3) + j;
            sum = sum * 47L + (sum >>> 4) + j;
            sum = sum * 49L + (sum >>> 5) + j;
            sum = sum * 51L + (sum >>> 6) + j;
            sum = sum * 53L + (sum >>> 7) + j;
            sum = sum * 55L + (sum >>> 8) + j;
            sum = sum * 57L + (sum >>> 9) + j;
            sum = sum * 59L + (sum >>> 3) + j;
            sum = sum * 61L + (sum >>> 4) + j;
            sum = sum * 63L + (sum >>> 5) + j;
            sum = sum * 65L + (sum >>> 6) + j;
            sum = sum * 67L + (sum >>> 7) + j;
            sum = sum * 69L + (sum >>> 8) + j;
            sum = sum * 71L + (sum >>> 9) + j;
            sum = sum * 73L + (sum >>> 3) + j;
            sum = sum * 75L + (sum >>> 4) + j;
            sum = sum * 77L + (sum >>> 5) + j;
            sum = sum * 79L + (sum >>> 6) + j;
            sum = sum * 81L + (sum >>> 7) + j;
        }
        return sum;
    }

    static double mixed() throws Exception {
        double sum = 0;
        for (int i = 0; i < 200; i++) {
            sum += SHAPES[i % SHAPES.length].area(i);
            sum += guarded(i);
            sum += caught(i);
        }
        sum += IntStream.range(0, 500).mapToObj(Integer::toString).filter(text -> text.endsWith("7")).count();
        sum += Pattern.compile("(a+)+b").matcher("aaaaaaaaaaac").find() ? 1 : 0;
        List<String> list = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            list.add("item " + i * 7919 % 1000);
        }
        list.sort(String::compareTo);
        sum += list.hashCode() + System.nanoTime() % 3 + new int[1000].clone().length;
        sum += (double) Chains.class.getDeclaredMethod("reflected", int.class).invoke(null, 3);
        return sum;
    }

    static double reflected(int i) {
        return Math.sin(i) + Math.pow(i, 1.5);
    }

    static double guarded(int i) {
        synchronized (LOCK) {
            return i;
        }
    }

    static double caught(int i) {
        try {
            if (i % 50 == 0) {
                throw new IllegalStateException("expected");
            }
            return i;
        } catch (IllegalStateException expected) {
            return 0;
        }
    }

    static void run(String mode, long end) {
        try {
            while (System.nanoTime() < end) {
                first(mode);
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static class Worker extends Thread {
        final String mode;
        final long end;

        Worker(String mode, long end) {
            this.mode = mode;
            this.end = end;
        }

        @Override
        public void run() {
            Chains.run(mode, end);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + Long.parseLong(arguments[1]) * 1_000_000_000L;
        String[] modes = arguments[0].split(",");
        for (int i = 1; i < modes.length; i++) {
            new Worker(modes[i], end).start();
        }
        String mode = modes[0];
        if (!mode.startsWith("virtual-")) {
            run(mode, end);
            return;
        }
        // By reflection, since 17 has no virtual threads.
        ExecutorService threads =
                (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        for (int i = 0; i < 4; i++) {
            threads.submit(() -> {
                while (System.nanoTime() < end) {
                    run(mode.substring(8), System.nanoTime() + 5_000_000);
                    Thread.sleep(1);
                }
                return 0;
            });
        }
        threads.shutdown();
        threads.awaitTermination(1, java.util.concurrent.TimeUnit.DAYS);
    }
}
