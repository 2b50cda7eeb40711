import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.function.LongUnaryOperator;

/**
 * One chain of methods, the last of which computes: SECONDS FRAMES, those of main and of that one included. With a third argument,
 * each method of the chain is of another class. At its end it says how often, and what CPU time that took.
 */
public class Deep {
    static final int WARM_UP_ROUNDS = 20_000;
    /** Where nothing is compiled, rounds take longer, and warm nothing up. */
    static final long WARM_UP_NANOS = 500_000_000;
    /** In an emulated machine, to read the clock takes longer than a round. */
    static final int ROUNDS_PER_TICK = 16;
    static volatile long sink;

    static long call(int left) {
        return left == 0 ? burn() : call(left - 1) + 1;
    }

    /** A method of the chain, in a class that is loaded for each anew. */
    public static class Link implements LongUnaryOperator {
        public LongUnaryOperator next;

        @Override
        public long applyAsLong(long left) {
            return next == null ? burn() : next.applyAsLong(left - 1) + 1;
        }
    }

    static LongUnaryOperator linked(int calls) throws Exception {
        URL[] classes = {Deep.class.getProtectionDomain().getCodeSource().getLocation()};
        LongUnaryOperator first = null;
        for (int i = 0; i < calls; i++) {
            Class<?> link = new URLClassLoader(classes, null).loadClass("Deep$Link");
            LongUnaryOperator added = (LongUnaryOperator) link.getConstructor().newInstance();
            link.getField("next").set(added, first);
            first = added;
        }
        return first;
    }

    static long burn() {
        long sum = 0;
        for (int i = 0; i < 5_000; i++) {
            sum += i * 31L ^ sum;
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[0]);
        int calls = Integer.parseInt(arguments[1]) - 2;
        LongUnaryOperator links = arguments.length > 2 ? linked(calls) : null;
        // All methods are compiled before the gate opens.
        long warm = System.nanoTime() + WARM_UP_NANOS;
        for (int i = 0; i < WARM_UP_ROUNDS && System.nanoTime() < warm; i++) {
            sink += links == null ? call(calls - 1) : links.applyAsLong(calls);
        }
        if (System.getenv("WORKLOAD_GATE") != null) {
            System.out.println("{\"ready\":" + new File("/proc/self").getCanonicalFile().getName() + "}");
            System.out.flush();
            System.in.read();
        }
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long cpuBefore = threads.getCurrentThreadCpuTime();
        long rounds = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (int i = 0; i < ROUNDS_PER_TICK; i++) {
                sink += links == null ? call(calls - 1) : links.applyAsLong(calls);
            }
            rounds += ROUNDS_PER_TICK;
        }
        System.out.println("{\"rounds\":" + rounds + ",\"cpu_ns\":" + (threads.getCurrentThreadCpuTime() - cpuBefore) + "}");
    }
}
