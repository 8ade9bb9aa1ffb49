// discover SERVER SERVICE: Prometheus's own discovery (consul_sd_configs) without the rest of Prometheus, which Debian builds without it. Prints the targets it finds, one JSON
// object a change, until standard input ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/discovery/consul"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"gopkg.in/yaml.v2"
)

func main() {
	var config consul.SDConfig
	text := fmt.Sprintf("server: %s\nservices: [%s]\nrefresh_interval: 1s\n", os.Args[1], os.Args[2])
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		panic(err)
	}
	discovery, err := consul.NewDiscovery(&config, log.NewLogfmtLogger(os.Stderr))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	groups := make(chan []*targetgroup.Group)
	go discovery.Run(ctx, groups)
	for {
		select {
		case <-ctx.Done():
			return
		case found := <-groups:
			targets := map[string]map[string]string{}
			for _, group := range found {
				for _, target := range group.Targets {
					labels := map[string]string{}
					for name, value := range target {
						labels[string(name)] = string(value)
					}
					targets[labels["__meta_consul_node"]] = labels
				}
			}
			line, _ := json.Marshal(targets)
			fmt.Println(string(line))
		}
	}
}
