/** A program that embeds Python (embeds_java.c): each calls the other, three times, and both compute: LIBRARY FOLDER SECONDS. */
public class Embeds {
    static final int DEPTH = 2;
    static volatile long sink;

    static native void start(String folder);

    static native void call(int depth);

    static void enter(int depth) {
        call(depth);
        sink++;
    }

    /** Called by Python. */
    static void callback(int depth) {
        if (depth > 0) {
            enter(depth - 1);
        } else {
            sink += compute();
        }
        sink++;
    }

    static long compute() {
        long sum = 0;
        for (int i = 0; i < 400_000; i++) {
            sum += i * 31L ^ sum;
        }
        return sum;
    }

    static void serve(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            enter(DEPTH);
        }
    }

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        start(arguments[1]);
        serve(Double.parseDouble(arguments[2]));
    }
}
