// The native half of workloads/Natives.java.
#include <jni.h>

JNIEXPORT void JNICALL Java_Natives_nothing(JNIEnv *env, jclass class) {
    (void)env;
    (void)class;
}
