package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// errTryAgain: there was nothing to lease, or the server is stopping or unreachable.
var errTryAgain = errors.New("try again")

// queue is a client of the queue server: three calls, in JSON.
type queue struct {
	http   http.Client
	server string
	token  string
	client string
}

type item struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Attempts  int    `json:"attempts"`
	Bytes     []byte `json:"bytes"`
}

type leasedItems struct {
	Partition int    `json:"partition"`
	Items     []item `json:"items"`
}

type retryItem struct {
	ID      string     `json:"id"`
	RetryAt *time.Time `json:"retry_at,omitempty"`
	Dead    bool       `json:"dead,omitempty"`
}

type fields map[string]any

func newQueue(server, token string) *queue {
	name, _ := os.Hostname()
	return &queue{server: server, token: token, client: fmt.Sprintf("%s:%d", name, os.Getpid())}
}

// lease waits for up to count items; the connection is open for as long.
func (q *queue) lease(
	ctx context.Context, name string, count int, wait time.Duration,
) (leased leasedItems, err error) {
	err = q.call(ctx, "queue.lease", fields{
		"queue_name": name, "batch_size": count, "client_id": q.client,
		"request_timeout": wait.String(),
	}, &leased)
	return leased, err
}

func (q *queue) complete(ctx context.Context, name string, partition int, ids ...string) error {
	return q.call(ctx, "queue.complete", fields{
		"queue_name": name, "partition": partition, "request_timeout": "30s", "ids": ids,
	}, &struct{}{})
}

func (q *queue) retry(ctx context.Context, name string, partition int, items ...retryItem) error {
	return q.call(ctx, "queue.retry", fields{
		"queue_name": name, "partition": partition, "items": items,
	}, &struct{}{})
}

func (q *queue) call(ctx context.Context, name string, request fields, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(
		ctx, http.MethodPost, q.server+"/v1/"+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	if q.token != "" {
		post.Header.Set("Authorization", "Bearer "+q.token)
	}
	answer, err := q.http.Do(post)
	if err != nil {
		return fmt.Errorf("%w: %w", errTryAgain, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return json.NewDecoder(answer.Body).Decode(reply)
	}
	var problem struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(answer.Body).Decode(&problem) // a proxy may answer with other text
	err = fmt.Errorf("%d %s", answer.StatusCode, problem.Message)
	if answer.StatusCode == 454 || answer.StatusCode >= 500 {
		return fmt.Errorf("%w: %w", errTryAgain, err)
	}
	return err
}
