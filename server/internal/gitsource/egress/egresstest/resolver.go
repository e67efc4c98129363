// Package egresstest provides a resolver whose answers come from a test. It uses the DNS protocol, so that the
// real resolver of the standard library sends the queries.
package egresstest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver returns a resolver that calls answer for the addresses of each name, in lower case and without the
// final dot. Each lookup calls it for IPv4 and for IPv6 concurrently. nil means that the name does not exist.
// Addresses of the other family are ignored.
func Resolver(answer func(name string, ipv6 bool) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe() // not a packet connection, so each message has a length prefix
		go serve(server, answer)
		return client, nil
	}}
}

func serve(conn net.Conn, answer func(name string, ipv6 bool) []netip.Addr) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return // the resolver has its answer
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply, err := respond(query, answer)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

func respond(query []byte, answer func(name string, ipv6 bool) []netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	question := m.Questions[0]
	ipv6 := question.Type == dnsmessage.TypeAAAA
	addrs := answer(strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")), ipv6)
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	if addrs == nil {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, addr := range addrs {
		header := dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: dnsmessage.ClassINET}
		switch {
		case ipv6 && addr.Is6():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		case !ipv6 && addr.Is4():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		}
	}
	return reply.Pack()
}
