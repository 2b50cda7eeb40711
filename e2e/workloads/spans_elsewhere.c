/* Runs the example of spans from a library: one that is linked, or that OPENED names. */
int spans_main(int argc, char **argv);

#ifdef OPENED
#include <dlfcn.h>

int main(int argc, char **argv)
{
	void *library = dlopen(OPENED, RTLD_NOW);
	int (*run)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "spans_main") : 0;

	return run ? run(argc, argv) : 1;
}
#else
int main(int argc, char **argv)
{
	return spans_main(argc, argv);
}
#endif
