// Three convoys of goroutines that wait for a sync.Mutex, each in a function of its own. Usage: convoys SECONDS
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func waitForRed(lock *sync.Mutex) { lock.Lock() }

//go:noinline
func waitForGreen(lock *sync.Mutex) { lock.Lock() }

//go:noinline
func waitForBlue(lock *sync.Mutex) { lock.Lock() }

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		os.Exit(2)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	waits := []func(*sync.Mutex){waitForRed, waitForGreen, waitForBlue}
	var group sync.WaitGroup
	var waited [3]time.Duration
	for i, wait := range waits {
		lock := new(sync.Mutex)
		for range 4 - i {
			group.Add(1)
			go func() {
				defer group.Done()
				for time.Now().Before(end) {
					start := time.Now()
					wait(lock)
					waited[i] += time.Since(start)
					time.Sleep(time.Duration(6-2*i) * time.Millisecond)
					lock.Unlock()
					time.Sleep(8 * time.Millisecond)
				}
			}()
		}
	}
	group.Wait()
	fmt.Println(waited[0].Milliseconds(), waited[1].Milliseconds(), waited[2].Milliseconds())
}
