import java.io.File;

/** One chain of methods, the last of which computes: SECONDS FRAMES, those of main and of that one included. */
public class Deep {
    static final int WARM_UP_ROUNDS = 20_000;
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
        for (int i = 0; i < WARM_UP_ROUNDS; i++) {
            sink += call(calls - 1);
        }
        if (System.getenv("WORKLOAD_GATE") != null) {
            System.out.println("{\"ready\":" + new File("/proc/self").getCanonicalFile().getName() + "}");
            System.out.flush();
            System.in.read();
        }
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            sink += call(calls - 1);
        }
    }
}
