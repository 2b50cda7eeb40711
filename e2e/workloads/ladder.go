// A known call chain in Go: main.main, main.climb, DEPTH rungs, main.burn.
//
// Usage: ladder SECONDS DEPTH
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// burn keeps an array, and with it a frame: a leaf without one is a gap in a chain of frame pointers.
//
//go:noinline
func burn(value uint64) uint64 {
	var recent [16]uint64
	for i := uint64(0); i < 1_000_000; i++ {
		recent[i%16] += i ^ value>>3
		value += recent[(i+5)%16]
	}
	return value
}

//go:noinline
func rung_0(left int, value uint64) uint64 {
	if left == 0 {
		return burn(value) + 1
	}
	return rung_1(left-1, value+1) ^ 1
}

//go:noinline
func rung_1(left int, value uint64) uint64 {
	if left == 0 {
		return burn(value) + 2
	}
	return rung_2(left-1, value+2) ^ 2
}

//go:noinline
func rung_2(left int, value uint64) uint64 {
	if left == 0 {
		return burn(value) + 3
	}
	return rung_0(left-1, value+3) ^ 3
}

//go:noinline
func climb(depth int, value uint64) uint64 {
	return rung_0(depth-1, value) + 1
}

func cpuNs() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		panic(err)
	}
	depth, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	pid := os.Getpid()
	fmt.Printf("{\"ready\":%d}\n", pid)
	if os.Getenv("WORKLOAD_GATE") != "" {
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			panic(err)
		}
	}
	cpuAtGateNs := cpuNs()
	deadline := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	value := uint64(1)
	for time.Now().Before(deadline) {
		value = climb(depth, value)
	}
	var rungs strings.Builder
	for n := 0; n < depth; n++ {
		fmt.Fprintf(&rungs, "\"main.rung_%d\",", n%3)
	}
	fmt.Printf("{\"pid\":%d,\"cpu_ns\":%d,\"tids\":[%d],\"chain\":[\"main.main\",\"main.climb\",%s\"main.burn\"]}\n",
		pid, cpuNs()-cpuAtGateNs, pid, rungs.String())
	if value == 42 {
		os.Exit(1)
	}
}
