// Package tunnel carries network connections over the Tunnel streams of the agent protocol. Each stream is one
// net.Conn. Both ends limit what the other may send before it is read, because gRPC does not limit that on every
// transport: behind an HTTP server it reads a stream into memory without bounds.
package tunnel
