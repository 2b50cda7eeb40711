// The first process of a pod: holds its namespaces, and waits for children that lost their parents, until who started
// the pod has gone.
#include <signal.h>
#include <unistd.h>

int main(void) {
    char byte;
    signal(SIGCHLD, SIG_IGN); // the kernel waits for them
    while (read(STDIN_FILENO, &byte, 1) > 0);
    return 0;
}
