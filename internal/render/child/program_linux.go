package child

const rootDir = "/"

// Self is the running program, even when its file was replaced. It may be a child only if its main asks
// Requested: a program that does not would do its own work again, and start the next.
func Self() string { return "/proc/self/exe" }
