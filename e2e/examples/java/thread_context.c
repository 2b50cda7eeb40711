/* The native half of ThreadContext.java: cc -O2 -shared -fPIC -I $JAVA_HOME/include -I $JAVA_HOME/include/linux, with -I ../c. */
#define _GNU_SOURCE
#include "otel_context.h"
#include <endian.h>
#include <jni.h>

enum { HTTP_ROUTE, HTTP_ROUTE_BYTES = sizeof(((struct otel_thread_context *)0)->attributes) - 2 };

/* One for each thread: nothing points to it while it changes. */
static __thread struct otel_thread_context record;

/* Texts of up to 40 bytes. Whether it is published. */
JNIEXPORT jboolean JNICALL Java_ThreadContext_publishProcess(JNIEnv *env, jclass class, jstring service, jstring version)
{
	const char *name, *number;
	jboolean is_published = JNI_FALSE;

	(void)class;
	name = (*env)->GetStringUTFChars(env, service, NULL);
	number = name ? (*env)->GetStringUTFChars(env, version, NULL) : NULL;
	if (number)
		is_published = !otel_publish_process(name, number, "http.route");
	if (number)
		(*env)->ReleaseStringUTFChars(env, version, number);
	if (name)
		(*env)->ReleaseStringUTFChars(env, service, name);
	return is_published;
}

/* Makes a span that of the thread. The route is in UTF-8, or null; one that is too long is left out. */
JNIEXPORT void JNICALL Java_ThreadContext_set(JNIEnv *env, jclass class, jlong trace_high, jlong trace_low, jlong span,
					      jbyte flags, jbyteArray route)
{
	uint64_t ids[3] = { htobe64(trace_high), htobe64(trace_low), htobe64(span) };
	jsize bytes = route ? (*env)->GetArrayLength(env, route) : 0;

	(void)class;
	otel_set_thread_context(NULL);
	memcpy(&record, ids, sizeof(ids));
	record.trace_flags = flags;
	record.attributes_bytes = 0;
	if (bytes > 0 && bytes <= HTTP_ROUTE_BYTES) {
		record.attributes[0] = HTTP_ROUTE;
		record.attributes[1] = bytes;
		(*env)->GetByteArrayRegion(env, route, 0, bytes, (jbyte *)record.attributes + 2);
		record.attributes_bytes = 2 + bytes;
	}
	record.valid = 1;
	otel_set_thread_context(&record);
}

JNIEXPORT void JNICALL Java_ThreadContext_clear(JNIEnv *env, jclass class)
{
	(void)env, (void)class;
	otel_set_thread_context(NULL);
}
