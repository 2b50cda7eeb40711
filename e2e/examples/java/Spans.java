import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.trace.SdkTracerProvider;

/**
 * A service whose threads say which span they are in: LIBRARY [SECONDS]. ThreadContext is what there is to copy. It prints each
 * span that it has begun.
 */
public final class Spans {
    private static final int THREADS = 3;
    private static volatile long sink;

    private static void cart() {
        compute(3);
    }

    private static void query() {
        compute(5);
    }

    private static void report() {
        compute(7);
    }

    private static void outside() {
        compute(9);
    }

    private static void compute(long value) {
        for (int i = 0; i < 2_000_000; i++) {
            value = (value ^ i) * 6364136223846793005L;
        }
        sink = value;
    }

    private static void inSpan(Tracer tracer, String route, Runnable work) {
        Span span = tracer.spanBuilder(route).setAttribute("http.route", route).startSpan();
        SpanContext ids = span.getSpanContext();
        System.out.println(ids.getTraceId() + " " + ids.getSpanId() + " " + route);
        try (Scope scope = span.makeCurrent()) {
            work.run();
        } finally {
            span.end();
        }
    }

    private static void serve(Tracer tracer, long end) {
        while (System.nanoTime() < end) {
            inSpan(tracer, "/cart", () -> {
                cart();
                inSpan(tracer, "/query", Spans::query);
                cart();
            });
            outside();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int seconds = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 10;
        ThreadContext.publish(arguments[0], "spans-in-java", "1.0.0");
        // As it is set up anywhere else, with an exporter.
        Tracer tracer = SdkTracerProvider.builder().build().get("spans-in-java");
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        Thread[] threads = new Thread[THREADS];
        for (int i = 0; i < THREADS; i++) {
            threads[i] = new Thread(() -> serve(tracer, end));
            threads[i].start();
        }
        inSpan(tracer, "/report", () -> {
            while (System.nanoTime() < end) {
                report();
            }
        });
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
