/* The native half of publish.js, for every version of Node.js: it needs Node-API alone. */
#define _GNU_SOURCE
#include "otel_context.h"
#include <node_api.h>
#include <stdbool.h>

enum { HTTP_ROUTE };

/* One for each thread, as workers are: nothing points to it while it changes. */
static __thread struct otel_thread_context record;

/* As many arguments as there have to be. */
static bool arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values)
{
	size_t given = count;

	if (napi_get_cb_info(env, info, &given, values, NULL, NULL) == napi_ok && given >= count)
		return true;
	napi_throw_type_error(env, NULL, "too few arguments");
	return false;
}

/* Whether a value is a text that fits, with its end. */
static bool text(napi_env env, napi_value value, char *to, size_t bytes)
{
	size_t length;

	if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok || length >= bytes)
		return false;
	return napi_get_value_string_utf8(env, value, to, bytes, &length) == napi_ok;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether a value is an id of so many bytes, in hexadecimal digits. */
static bool id(napi_env env, napi_value value, uint8_t *to, size_t bytes)
{
	char digits[33];

	if (!text(env, value, digits, sizeof(digits)) || strlen(digits) != 2 * bytes)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		int high = digit(digits[2 * i]), low = digit(digits[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		to[i] = high << 4 | low;
	}
	return true;
}

/* publishProcess(service, version): texts of up to 40 bytes. */
static napi_value publish_process(napi_env env, napi_callback_info info)
{
	char service[41], version[41];
	napi_value values[2];

	if (!arguments(env, info, 2, values))
		return NULL;
	if (!text(env, values[0], service, sizeof(service)) || !text(env, values[1], version, sizeof(version)) ||
	    otel_publish_process(service, version, "http.route"))
		napi_throw_error(env, NULL, "the process context can't be published");
	return NULL;
}

/* set(traceId, spanId, flags, route): makes a span that of the thread; a route that is empty or too long is left out. */
static napi_value set(napi_env env, napi_callback_info info)
{
	char route[sizeof(record.attributes) - 1];
	uint8_t trace_id[16], span_id[8];
	napi_value values[4];
	uint32_t flags;

	if (!arguments(env, info, 4, values))
		return NULL;
	otel_set_thread_context(NULL);
	if (!id(env, values[0], trace_id, sizeof(trace_id)) || !id(env, values[1], span_id, sizeof(span_id)) ||
	    napi_get_value_uint32(env, values[2], &flags) != napi_ok) {
		napi_throw_type_error(env, NULL, "not the ids of a span");
		return NULL;
	}
	record = (struct otel_thread_context){ .valid = 1, .trace_flags = flags };
	memcpy(record.trace_id, trace_id, sizeof(trace_id));
	memcpy(record.span_id, span_id, sizeof(span_id));
	if (text(env, values[3], route, sizeof(route)) && route[0])
		otel_add_attribute(&record, HTTP_ROUTE, route);
	otel_set_thread_context(&record);
	return NULL;
}

static napi_value clear(napi_env env, napi_callback_info info)
{
	(void)env, (void)info;
	otel_set_thread_context(NULL);
	return NULL;
}

NAPI_MODULE_INIT()
{
	const napi_property_descriptor functions[] = {
		{ "publishProcess", NULL, publish_process, NULL, NULL, NULL, napi_enumerable, NULL },
		{ "set", NULL, set, NULL, NULL, NULL, napi_enumerable, NULL },
		{ "clear", NULL, clear, NULL, NULL, NULL, napi_enumerable, NULL },
	};

	if (napi_define_properties(env, exports, sizeof(functions) / sizeof(*functions), functions) != napi_ok)
		return NULL;
	return exports;
}
