// A client in Go, of messages that protoc generates from querator.proto, in protobuf and in
// the JSON of Go's protobuf library. QUEUE_SERVER is the address of the server.
package go_client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "go_client/querator"
)

type form struct {
	name, contentType string
	marshal           func(proto.Message) ([]byte, error)
	unmarshal         func([]byte, proto.Message) error
}

var forms = []form{
	{"protobuf", "application/protobuf", proto.Marshal, proto.Unmarshal},
	{"json", "application/json", protojson.Marshal, protojson.Unmarshal},
	{"snake_case_json", "application/json", snakeCase.Marshal, protojson.Unmarshal},
}

var snakeCase = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

type client struct {
	*testing.T
	form
}

func (c client) post(call string, request, reply proto.Message) int {
	c.Helper()
	body, err := c.marshal(request)
	if err != nil {
		c.Fatal(err)
	}
	url := os.Getenv("QUEUE_SERVER") + "/v1/" + call
	answer, err := http.Post(url, c.contentType, bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		reply = &pb.Reply{}
	}
	if err := c.unmarshal(found, reply); err != nil {
		c.Fatalf("%s: %d %s: %v", call, answer.StatusCode, found, err)
	}
	if problem, ok := reply.(*pb.Reply); ok {
		c.Logf("%s: %s", call, problem.Message)
		if int(problem.Code) != answer.StatusCode {
			c.Errorf("%s: status %d, code %d", call, answer.StatusCode, problem.Code)
		}
	}
	return answer.StatusCode
}

func (c client) must(call string, request, reply proto.Message) {
	c.Helper()
	if code := c.post(call, request, reply); code != http.StatusOK {
		c.Fatalf("%s: %d", call, code)
	}
}

func (c client) refused(code int, call string, request proto.Message) {
	c.Helper()
	if got := c.post(call, request, &pb.Reply{}); got != code {
		c.Errorf("%s: got %d, want %d", call, got, code)
	}
}

func (c client) lease(queue string, count int32) *pb.QueueLeaseResponse {
	c.Helper()
	leased := &pb.QueueLeaseResponse{}
	c.must("queue.lease", &pb.QueueLeaseRequest{
		QueueName: queue, BatchSize: count, ClientId: "go", RequestTimeout: "30s",
	}, leased)
	return leased
}

func (c client) items(queue string) []*pb.StorageItem {
	c.Helper()
	found := &pb.StorageItemsListResponse{}
	c.must("storage/items.list", &pb.StorageItemsListRequest{QueueName: queue}, found)
	return found.Items
}

// queues creates a queue and its dead queue, under names of their own.
func (c client) queues() (jobs, dead string) {
	c.Helper()
	jobs = fmt.Sprintf("%s-%s-%d", "jobs", c.name, time.Now().UnixNano())
	dead = jobs + "-dead"
	usual := pb.QueueInfo{
		LeaseTimeout: proto.String("1m"), ExpireTimeout: proto.String("24h"),
		RequestedPartitions: proto.Int32(1), MaxAttempts: proto.Int32(3),
	}
	last := proto.Clone(&usual).(*pb.QueueInfo)
	last.QueueName = dead
	c.must("queues.create", last, &pb.Reply{})
	first := proto.Clone(&usual).(*pb.QueueInfo)
	first.QueueName, first.DeadQueue = jobs, proto.String(dead)
	c.must("queues.create", first, &pb.Reply{})
	return jobs, dead
}

func each(t *testing.T, run func(client)) {
	for _, one := range forms {
		t.Run(one.name, func(t *testing.T) { run(client{t, one}) })
	}
}

func TestItemsLiveAndDie(t *testing.T) {
	each(t, func(c client) {
		jobs, dead := c.queues()
		payload := []byte{0, 0xff, 0xfe, '?', '>'}
		c.must("queue.produce", &pb.QueueProduceRequest{
			QueueName: jobs, RequestTimeout: "30s",
			Items: []*pb.ProduceItem{
				{Bytes: payload, Reference: "r", Kind: "k", Encoding: "e"}, {Utf8: "ä"}, {Utf8: "x"},
			},
		}, &pb.Reply{})

		leased := c.lease(jobs, 10)
		if len(leased.Items) != 3 || leased.QueueName != jobs {
			c.Fatalf("leased %v", leased)
		}
		first := leased.Items[0]
		if !bytes.Equal(first.Bytes, payload) || first.Attempts != 1 || first.Reference != "r" {
			c.Errorf("leased %v", first)
		}
		if left := time.Until(first.LeaseDeadline.AsTime()); left <= 0 || left > time.Minute {
			c.Errorf("lease ends in %v", left)
		}
		c.must("queue.complete", &pb.QueueCompleteRequest{
			QueueName: jobs, Partition: leased.Partition, RequestTimeout: "30s",
			Ids: []string{leased.Items[1].Id},
		}, &pb.Reply{})
		c.must("queue.retry", &pb.QueueRetryRequest{
			QueueName: jobs, Partition: leased.Partition,
			Items: []*pb.RetryItem{{Id: first.Id, Dead: true}, {Id: leased.Items[2].Id}},
		}, &pb.Reply{})

		if again := c.lease(jobs, 10); len(again.Items) != 1 || again.Items[0].Attempts != 2 {
			c.Errorf("leased again %v", again)
		}
		found := c.items(dead)
		if len(found) != 1 || found[0].SourceId != first.Id || !bytes.Equal(found[0].Payload, payload) {
			c.Fatalf("dead %v", found)
		}
		if deadline := found[0].LeaseDeadline; c.name == "protobuf" && !deadline.AsTime().IsZero() {
			c.Errorf("lease deadline of a waiting item is %v", deadline)
		}
		stats := &pb.QueueStatsResponse{}
		c.must("queue.stats", &pb.QueueStatsRequest{QueueName: jobs}, stats)
		if one := stats.LogicalQueues[0].Partitions[0]; one.Total != 1 || one.TotalLeased != 1 {
			c.Errorf("stats %v", stats)
		}
	})
}

func TestErrorsHaveTheirCodes(t *testing.T) {
	each(t, func(c client) {
		jobs, _ := c.queues()
		c.refused(404, "queues.info", &pb.QueuesInfoRequest{QueueName: "missing"})
		c.refused(400, "queue.produce", &pb.QueueProduceRequest{QueueName: jobs})
		c.refused(454, "queue.lease", &pb.QueueLeaseRequest{
			QueueName: jobs, BatchSize: 1, ClientId: "go", RequestTimeout: "50ms",
		})
		c.refused(400, "storage/items.import", &pb.StorageItemsImportRequest{QueueName: jobs})
		c.refused(400, "storage/items.delete", &pb.StorageItemsDeleteRequest{QueueName: jobs})
		c.refused(501, "namespaces.list", &pb.QueuesListRequest{})
		broken := c
		broken.marshal = func(proto.Message) ([]byte, error) { return []byte("{\xff"), nil }
		broken.refused(455, "queues.list", &pb.QueuesListRequest{})
	})
}

func TestOptionsAreRemovedByAnUpdate(t *testing.T) {
	each(t, func(c client) {
		jobs, dead := c.queues()
		info := func() (int32, string) {
			found := &pb.QueueInfo{}
			c.must("queues.info", &pb.QueuesInfoRequest{QueueName: jobs}, found)
			return found.GetMaxAttempts(), found.GetDeadQueue()
		}
		c.must("queues.update", &pb.QueueInfo{
			QueueName: jobs, MaxAttempts: proto.Int32(-1 << 31),
		}, &pb.Reply{})
		if attempts, queue := info(); attempts != 0 || queue != dead {
			c.Errorf("%d attempts, dead queue %q", attempts, queue)
		}
		c.must("queues.update", &pb.QueueInfo{
			QueueName: jobs, DeadQueue: proto.String("~"),
		}, &pb.Reply{})
		if attempts, queue := info(); attempts != 0 || queue != "" {
			c.Errorf("%d attempts, dead queue %q", attempts, queue)
		}
	})
}
