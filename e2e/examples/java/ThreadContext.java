import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.trace.ReadableSpan;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;

/**
 * Which span each thread is in, for readers outside of the process (OTEP 4947, "Thread Context"). To copy, with thread_context.c.
 *
 * <p>The SDK's own storage of contexts is wrapped: whatever makes a span current, here or in a library, goes through it. A virtual
 * thread publishes nothing: the variable belongs to its carrier, and nothing tells when another thread takes that over.
 */
final class ThreadContext implements ContextStorage {
    private static final AttributeKey<String> HTTP_ROUTE = AttributeKey.stringKey("http.route");
    /** Thread.isVirtual; null before Java 21. */
    private static final MethodHandle IS_VIRTUAL = isVirtualMethod();

    private final ContextStorage storage;

    private ThreadContext(ContextStorage storage) {
        this.storage = storage;
    }

    /** Publishes from now on. Call it once, before a span is made current: afterwards the SDK's storage is fixed. */
    static void publish(String library, String service, String version) {
        System.load(library);
        if (!publishProcess(service, version)) {
            throw new IllegalStateException("the process context of " + service + " can't be published");
        }
        ContextStorage.addWrapper(ThreadContext::new);
    }

    @Override
    public Scope attach(Context context) {
        Scope scope = storage.attach(context);
        show(context);
        return () -> {
            scope.close();
            show(storage.current());
        };
    }

    @Override
    public Context current() {
        return storage.current();
    }

    private static void show(Context context) {
        if (isVirtual(Thread.currentThread())) {
            return;
        }
        Span span = context == null ? Span.getInvalid() : Span.fromContext(context);
        SpanContext ids = span.getSpanContext();
        if (!ids.isValid()) {
            clear();
            return;
        }
        String route = span instanceof ReadableSpan ? ((ReadableSpan) span).getAttribute(HTTP_ROUTE) : null;
        set(
                Long.parseUnsignedLong(ids.getTraceId().substring(0, 16), 16),
                Long.parseUnsignedLong(ids.getTraceId().substring(16), 16),
                Long.parseUnsignedLong(ids.getSpanId(), 16),
                ids.getTraceFlags().asByte(),
                route == null ? null : route.getBytes(StandardCharsets.UTF_8));
    }

    private static boolean isVirtual(Thread thread) {
        try {
            return IS_VIRTUAL != null && (boolean) IS_VIRTUAL.invokeExact(thread);
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    private static MethodHandle isVirtualMethod() {
        try {
            MethodType type = MethodType.methodType(boolean.class);
            return MethodHandles.publicLookup().findVirtual(Thread.class, "isVirtual", type);
        } catch (ReflectiveOperationException beforeJava21) {
            return null;
        }
    }

    private static native boolean publishProcess(String service, String version);

    private static native void set(long traceHigh, long traceLow, long span, byte flags, byte[] route);

    private static native void clear();
}
