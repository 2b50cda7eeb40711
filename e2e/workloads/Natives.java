/** Calls a native method that does nothing, again and again: LIBRARY SECONDS (natives.c). */
public class Natives {
    static native void nothing();

    static void calls() {
        for (int i = 0; i < 1_000; i++) {
            nothing();
        }
    }

    static void serve(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            calls();
        }
    }

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        serve(Double.parseDouble(arguments[1]));
    }
}
