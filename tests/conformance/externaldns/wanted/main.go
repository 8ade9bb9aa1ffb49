// What a Kubernetes cluster wants, passed to a real ExternalDNS by its "connector" source: endpoints from a JSON file, read again each time it asks.
//
//	wanted FILE     prints the port it listens at
package main

import (
	"encoding/gob"
	"encoding/json"
	"fmt"
	"net"
	"os"
)

type property struct{ Name, Value string }

// The fields of ExternalDNS' own type: gob goes by their names.
type endpoint struct {
	DNSName          string            `json:"dnsName"`
	Targets          []string          `json:"targets"`
	RecordType       string            `json:"recordType"`
	SetIdentifier    string            `json:"setIdentifier"`
	RecordTTL        int64             `json:"recordTTL"`
	Labels           map[string]string `json:"labels"`
	ProviderSpecific []property        `json:"providerSpecific"`
}

func serve(connection net.Conn, file string) {
	defer connection.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	var endpoints []*endpoint
	if err := json.Unmarshal(text, &endpoints); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if err := gob.NewEncoder(connection).Encode(endpoints); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		serve(connection, os.Args[1])
	}
}
