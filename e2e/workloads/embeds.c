// A server that embeds CPython, as uWSGI does: it loads its application, forks its workers, and each of these calls a function
// of the application for each request from a loop of its own.
//
// Usage: embeds FOLDER SECONDS; FOLDER has served.py. Each worker serves for SECONDS of CPU time. They are forked behind the gate.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sys/wait.h>

#include "workload.h"

enum { WORKERS = 2 };

// Returns the number of requests.
NOINLINE static long serve(PyObject *handle, double seconds) {
    uint64_t until_ns = workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) + (uint64_t)(seconds * 1e9);
    long requests = 0;
    while (workload_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < until_ns) {
        PyObject *answer = PyObject_CallFunction(handle, "l", requests);
        if (!answer) {
            PyErr_Print();
            exit(1);
        }
        Py_DECREF(answer);
        requests++;
    }
    AFTER_CALL(requests);
    return requests;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    Py_Initialize();
    PyObject *path = PySys_GetObject("path"), *folder = PyUnicode_FromString(argv[1]);
    PyList_Insert(path, 0, folder);
    PyObject *application = PyImport_ImportModule("served");
    PyObject *handle = application ? PyObject_GetAttrString(application, "handle") : NULL;
    if (!handle) {
        PyErr_Print();
        return 1;
    }
    workload_begin();
    for (int i = 0; i < WORKERS; i++) {
        PyOS_BeforeFork();
        pid_t pid = fork();
        if (pid == 0) {
            PyOS_AfterFork_Child();
            _exit(serve(handle, atof(argv[2])) == 0);
        }
        PyOS_AfterFork_Parent();
    }
    int status = 0;
    for (int i = 0; i < WORKERS; i++) {
        int ended;
        wait(&ended);
        status |= ended;
    }
    workload_report("\"main\",\"serve\"");
    return status != 0;
}
