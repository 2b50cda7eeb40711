import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;

/**
 * Classes that are made, compiled, executed for a moment and unloaded, one after the other: SECONDS. Each has the code of
 * {@link Churn0000000} and a number in its name, which only grows. So a stack has one number, and no later one has a lower one.
 */
public class Churn {
    public static volatile long sink;

    /** Each class has a loader of its own, so that it is unloaded alone. */
    static class Loader extends ClassLoader {
        Class<?> define(byte[] code) {
            return defineClass(null, code, 0, code.length);
        }
    }

    static byte[] template() throws Exception {
        try (InputStream stream = Churn.class.getResourceAsStream("Churn0000000.class")) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            byte[] buffer = new byte[4096];
            for (int count; (count = stream.read(buffer)) > 0; ) {
                bytes.write(buffer, 0, count);
            }
            return bytes.toByteArray();
        }
    }

    /** The class file with another number in the place of each `0000000`. */
    static byte[] numbered(byte[] template, int number) {
        byte[] digits = String.format("%07d", number).getBytes(StandardCharsets.US_ASCII);
        byte[] code = template.clone();
        for (int at = 0; at + 12 <= code.length; at++) {
            if (new String(code, at, 12, StandardCharsets.US_ASCII).equals("Churn0000000")) {
                System.arraycopy(digits, 0, code, at + 5, digits.length);
            }
        }
        return code;
    }

    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        byte[] template = template();
        for (int number = 1; System.nanoTime() < end; number++) {
            Class<?> made = new Loader().define(numbered(template, number));
            Runnable task = (Runnable) made.getDeclaredConstructor().newInstance();
            for (int i = 0; i < 40; i++) {
                task.run();
            }
            if (number % 200 == 0) {
                System.gc();
            }
        }
    }
}
