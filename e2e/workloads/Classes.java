import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.IntUnaryOperator;

/**
 * 20,000 classes that call each other: SECONDS. Each has the code of {@link Class0000000}, with other numbers for itself and for the
 * class that it calls. Once each has been called, a file {@code ready} says so.
 */
public class Classes {
    private static final int CLASSES = 20_000;
    /** Without a common divisor with the number of classes: each calls another one. */
    private static final int STEP = 7_919;

    public static volatile int sink;

    private static final class Loader extends ClassLoader {
        private final byte[] template;

        Loader(byte[] template) {
            super(Classes.class.getClassLoader());
            this.template = template;
        }

        /** The template's own name ends in 0, that of the class that it calls in 1. */
        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            int number = Integer.parseInt(name.substring("Class".length()));
            byte[] code = template.clone();
            for (int at = 0; at + 12 <= code.length; at++) {
                String text = new String(code, at, 12, StandardCharsets.US_ASCII);
                if (text.equals("Class0000000")) {
                    put(code, at + 5, number);
                } else if (text.equals("Class0000001")) {
                    put(code, at + 5, 2 + (number - 2 + STEP) % CLASSES);
                }
            }
            return defineClass(name, code, 0, code.length);
        }

        private static void put(byte[] code, int at, int number) {
            byte[] digits = String.format("%07d", number).getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(digits, 0, code, at, digits.length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        Loader loader;
        try (InputStream stream = Classes.class.getClassLoader().getResourceAsStream("Class0000000.class")) {
            loader = new Loader(stream.readAllBytes());
        }
        IntUnaryOperator[] made = new IntUnaryOperator[CLASSES];
        for (int number = 0; number < CLASSES; number++) {
            // 0 and 1 are the template's.
            String name = String.format("Class%07d", number + 2);
            Constructor<?> constructor = loader.loadClass(name).getDeclaredConstructor();
            // Another loader's classes are in another package.
            constructor.setAccessible(true);
            made[number] = (IntUnaryOperator) constructor.newInstance();
        }
        for (int round = 0; System.nanoTime() < end; round++) {
            for (IntUnaryOperator one : made) {
                sink += one.applyAsInt(round);
            }
            if (round == 0) {
                Files.writeString(Path.of("ready"), "");
            }
        }
        System.exit(0);
    }
}

class Class0000000 implements IntUnaryOperator {
    private static final int DEPTH = 20;

    @Override
    public int applyAsInt(int value) {
        return compute(value, DEPTH);
    }

    static int compute(int value, int depth) {
        int sum = value;
        for (int turn = 0; turn < 20; turn++) {
            sum = sum * 31 + (sum >>> 7) % (turn + 3);
        }
        return depth == 0 ? sum : sum ^ Class0000001.compute(sum, depth - 1);
    }
}

class Class0000001 {
    static int compute(int value, int depth) {
        return value + depth;
    }
}
