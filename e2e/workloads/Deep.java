import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * One chain of methods, the last of which computes: SECONDS FRAMES, those of main and of that one included. At its end it says how
 * often, and what CPU time that took.
 */
public class Deep {
    static final int WARM_UP_ROUNDS = 20_000;
    /** Where nothing is compiled, rounds take longer, and warm nothing up. */
    static final long WARM_UP_NANOS = 500_000_000;
    static volatile long sink;

    static long call(int left) {
        return left == 0 ? burn() : call(left - 1) + 1;
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
        // All methods are compiled before the gate opens.
        long warm = System.nanoTime() + WARM_UP_NANOS;
        for (int i = 0; i < WARM_UP_ROUNDS && System.nanoTime() < warm; i++) {
            sink += call(calls - 1);
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
            sink += call(calls - 1);
            rounds++;
        }
        System.out.println("{\"rounds\":" + rounds + ",\"cpu_ns\":" + (threads.getCurrentThreadCpuTime() - cpuBefore) + "}");
    }
}
