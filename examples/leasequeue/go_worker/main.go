// A worker in Go: it leases a frame, renders it, and reports the result.
//
// It reads the same variables as the worker in Python (see ../README.md) and needs only
// the standard library: the queue server is JSON over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	queueName = "frames"
	wait      = 20 * time.Second       // that one lease request waits
	pause     = 500 * time.Millisecond // before an unreachable server is asked again
)

type settings struct {
	server   string
	token    string
	pictures string
	retry    time.Duration // before another worker tries
	pixels   int           // of the largest picture
}

func main() {
	options, err := readSettings()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go_worker:", err)
		os.Exit(2)
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	queue := newQueue(options.server, options.token)
	fmt.Printf("worker %d is ready\n", os.Getpid())
	for stop.Err() == nil {
		leased, err := queue.lease(stop, queueName, 1, wait)
		if errors.Is(err, errTryAgain) {
			sleep(stop, pause)
			continue
		}
		if stop.Err() == nil && err != nil {
			fmt.Fprintln(os.Stderr, "go_worker:", err)
			os.Exit(1)
		}
		for _, item := range leased.Items {
			settle(queue, leased.Partition, item, options)
		}
	}
}

func readSettings() (settings, error) {
	retry, err := strconv.ParseFloat(variable("FARM_PAUSE", "5"), 64)
	if err != nil || retry < 0 {
		return settings{}, fmt.Errorf("FARM_PAUSE must be seconds, got %q", os.Getenv("FARM_PAUSE"))
	}
	pixels, err := strconv.Atoi(variable("FARM_PIXELS", "4000000"))
	if err != nil {
		return settings{}, fmt.Errorf("FARM_PIXELS must be a number, got %q", os.Getenv("FARM_PIXELS"))
	}
	return settings{
		server:   variable("FARM_SERVER", "http://127.0.0.1:"+variable("FARM_PORT", "8418")),
		token:    os.Getenv("FARM_TOKEN"),
		pictures: variable("FARM_PICTURES", "pictures"),
		retry:    time.Duration(retry * float64(time.Second)),
		pixels:   pixels,
	}, nil
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func sleep(stop context.Context, duration time.Duration) {
	select {
	case <-stop.Done():
	case <-time.After(duration):
	}
}

// settle renders an item and reports the result: complete, retry, or dead.
func settle(queue *queue, partition int, item item, options settings) {
	// The frame in hand is finished, so it is not bound to the context of the worker.
	ctx := context.Background()
	frame, err := readFrame(item.Bytes)
	if err != nil {
		fmt.Printf("%s is dead: %v\n", item.Reference, err)
		report(item, queue.retry(ctx, queueName, partition, retryItem{ID: item.ID, Dead: true}))
		return
	}
	if err := save(frame, options); err != nil {
		fmt.Printf("%s, attempt %d: %v\n", item.Reference, item.Attempts, err)
		at := time.Now().Add(options.retry)
		report(item, queue.retry(ctx, queueName, partition, retryItem{ID: item.ID, RetryAt: &at}))
		return
	}
	fmt.Printf("%s rendered, attempt %d\n", frame.name(), item.Attempts)
	report(item, queue.complete(ctx, queueName, partition, item.ID))
}

func report(item item, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errTryAgain):
		fmt.Printf("%s: the server is unreachable, so the frame will come again\n", item.Reference)
	default:
		fmt.Printf("%s: the lease expired (%v)\n", item.Reference, err)
	}
}

// save writes a picture under another name first, so that it appears whole or not at all.
func save(frame frame, options settings) error {
	picture, err := frame.render(options.pixels)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(options.pictures, 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(options.pictures, fmt.Sprintf(".%s.%d", frame.name(), os.Getpid()))
	if err := os.WriteFile(temporary, picture, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(options.pictures, frame.name()+".png"))
}
