// What lets a program in Java run Python, and Python call it back (workloads/Embeds.java).
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <jni.h>

// Everything runs on one thread of Java's.
static JNIEnv *environment;
static jclass java_class;
static jmethodID java_callback;
static PyObject *python_handle, *python_callback;

// Python's exception, as one of Java's.
static void throw_python_error(JNIEnv *env) {
    PyErr_Print();
    (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), "an exception in Python");
}

static PyObject *call_back(PyObject *self, PyObject *depth) {
    (void)self;
    (*environment)->CallStaticVoidMethod(environment, java_class, java_callback, (jint)PyLong_AsLong(depth));
    if ((*environment)->ExceptionCheck(environment)) return PyErr_Format(PyExc_RuntimeError, "an exception in Java");
    Py_RETURN_NONE;
}

static PyMethodDef call_back_method = {"call_back", call_back, METH_O, NULL};

JNIEXPORT void JNICALL Java_Embeds_start(JNIEnv *env, jclass class, jstring folder) {
    environment = env;
    java_class = (*env)->NewGlobalRef(env, class);
    java_callback = (*env)->GetStaticMethodID(env, class, "callback", "(I)V");
    // Signals stay Java's.
    Py_InitializeEx(0);
    const char *path = (*env)->GetStringUTFChars(env, folder, NULL);
    PyList_Insert(PySys_GetObject("path"), 0, PyUnicode_FromString(path));
    (*env)->ReleaseStringUTFChars(env, folder, path);
    PyObject *module = PyImport_ImportModule("called");
    python_handle = module ? PyObject_GetAttrString(module, "handle") : NULL;
    python_callback = PyCFunction_New(&call_back_method, NULL);
    if (!python_handle || !python_callback) throw_python_error(env);
}

JNIEXPORT void JNICALL Java_Embeds_call(JNIEnv *env, jclass class, jint depth) {
    (void)class;
    PyObject *answer = PyObject_CallFunction(python_handle, "iO", (int)depth, python_callback);
    if (answer)
        Py_DECREF(answer);
    else
        throw_python_error(env);
}
