// An addon that JavaScript calls, and that calls it back (workloads/node/addon.js).
#include <node_api.h>

// call(function, depth): what function(depth) returns.
static napi_value CallThrough(napi_env env, napi_callback_info info) {
    napi_value values[2], undefined, result = nullptr;
    size_t count = 2;
    napi_get_cb_info(env, info, &count, values, nullptr, nullptr);
    napi_get_undefined(env, &undefined);
    // Where the function throws, its exception is pending, and there is no result.
    napi_call_function(env, undefined, values[0], 1, &values[1], &result);
    return result;
}

NAPI_MODULE_INIT() {
    napi_value function = nullptr;
    napi_create_function(env, "call", NAPI_AUTO_LENGTH, CallThrough, nullptr, &function);
    napi_set_named_property(env, exports, "call", function);
    return exports;
}
