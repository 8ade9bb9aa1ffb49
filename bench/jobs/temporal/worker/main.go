// temporal-worker ADDRESS WORKFLOWS AT_ONCE: runs workflows of ten activities that do nothing, each after the one before it, on a Temporal server; prints one line of JSON.
// The same shape as the bench's own graph: a workflow is a machine, its activities are the machine's ten tasks.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const activities = 10

func nothing(context.Context) error { return nil }

func ten(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for i := 0; i < activities; i++ {
		if err := workflow.ExecuteActivity(ctx, nothing).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "temporal-worker ADDRESS WORKFLOWS AT_ONCE")
		os.Exit(2)
	}
	workflows, err := strconv.Atoi(os.Args[2])
	check(err)
	atOnce, err := strconv.Atoi(os.Args[3])
	check(err)
	quiet := tlog.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	server, err := client.Dial(client.Options{HostPort: os.Args[1], Logger: quiet})
	check(err)
	defer server.Close()
	host := worker.New(server, "bench", worker.Options{})
	host.RegisterWorkflow(ten)
	host.RegisterActivity(nothing)
	check(host.Start())
	defer host.Stop()

	run := func(name string, count int) time.Duration {
		began, next, failed := time.Now(), make(chan int), make(chan error, count)
		var all sync.WaitGroup
		for i := 0; i < atOnce; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for n := range next {
					started, err := server.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{ID: fmt.Sprintf("%s-%d", name, n), TaskQueue: "bench"}, ten)
					if err == nil {
						err = started.Get(context.Background(), nil)
					}
					if err != nil {
						failed <- err
					}
				}
			}()
		}
		for n := 0; n < count; n++ {
			next <- n
		}
		close(next)
		all.Wait()
		took := time.Since(began)
		select {
		case err := <-failed:
			check(err)
		default:
		}
		return took
	}
	run("warm", 2) // the first poll of a queue is not what is measured
	took := run("bench", workflows).Seconds()
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"workflows": workflows, "at_once": atOnce, "seconds": took, "activities": workflows * activities, "rate": float64(workflows*activities) / took}))
}
