// Package sandbox confines a process that renders what strangers wrote: no network, no files, no other
// programs, little memory. [Isolate] says how its parent starts it, [Enter] is what it calls before it
// reads any input, and from then on there is no way back.
//
// There are several walls, one behind the other, because no system has all of them for certain: namespaces
// need a kernel and a container runtime that let ordinary users have them, Landlock a kernel that was
// started with it. [Status] says which ones stand, and what can be reached in spite of them. On anything
// but Linux there are none.
//
//	wall        network          files            programs      other processes
//	seccomp     no socket        no open          no exec       no signal, no ptrace
//	landlock    no TCP           no access        no access     no signal (since Linux 6.12)
//	namespaces  one without      -                -             a PID space of its own
//	root        -                an empty folder  none there    -
//	limits      memory, CPU time, open files, size of written files, core dumps
//
// All of it is per process and for good. It needs a program built without cgo, since only then can Go
// change all threads at once.
package sandbox
