/* Creates more pthread keys than glibc keeps in a thread's structure, before the program starts. */
#include <pthread.h>

__attribute__((constructor)) static void create_keys(void)
{
	for (int i = 0; i < 40; i++) {
		pthread_key_t key;

		pthread_key_create(&key, 0);
	}
}
