// Package sandbox confines a process that renders untrusted input: no network, no files, no other programs,
// little memory. The parent starts the process with [Isolate]. The process calls [Enter] before it reads any
// input, and cannot undo it.
//
// There are several independent mechanisms because no system is certain to have all of them: namespaces need a
// kernel and a container runtime that allow them to ordinary users, and Landlock needs a kernel that was
// started with it. [Status] lists the active ones, and what is reachable without the others. Systems other than
// Linux have none.
//
//	mechanism   network          files            programs      other processes
//	seccomp     no socket        no open          no exec       no signal, no ptrace
//	landlock    no TCP           no access        no access     no signal (since Linux 6.12)
//	namespaces  none             -                -             a separate PID namespace
//	root        -                an empty folder  none there    -
//	limits      memory, CPU time, open files, size of written files, core dumps
//
// All mechanisms are per process and permanent. They need a program built without cgo, because only then can Go
// change all threads together.
package sandbox
