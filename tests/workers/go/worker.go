// A worker: takes messages of one flow from a tidegate host, does a pretend job with each, and settles it.
//
// Stubs, into `tidegatev1`:
//
//	go build -o bin/ tool && export PATH=$PWD/bin:$PATH M=Mtidegate/v1/handoff.proto=worker/tidegatev1
//	protoc -I PROTO --go_out=. --go_opt=module=worker,$M --go-grpc_out=. --go-grpc_opt=module=worker,$M \
//	  tidegate/v1/handoff.proto
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	pb "worker/tidegatev1"
)

var (
	credits       = 4                                    // messages at one time
	settleAddress = os.Getenv("TIDEGATE_SETTLE_ADDRESS") // another host of the fleet, to settle there
	_, trace      = os.LookupEnv("TIDEGATE_TRACE")       // whether to say what comes and what is settled, with receipts
)

// open is a settlement without an answer. From `due` on it is tried past the streams, until its lease ends.
type open struct {
	settlement *pb.Settlement
	what       string
	due, ends  time.Time
}

func (o *open) say() {
	if trace {
		fmt.Println("settles", o.what)
	}
}

type worker struct {
	host      pb.HandoffClient
	settler   pb.HandoffClient
	mutex     sync.Mutex
	stream    pb.Handoff_SubscribeClient // the one that is open
	running   int                        // messages that are being worked on
	unsettled map[string]*open           // by receipt
	places    chan struct{}
}

// work is the pretend job. It says what is to become of the message.
func work(delivery *pb.Delivery) (string, *pb.Settlement) {
	time.Sleep(50 * time.Millisecond)
	switch body := string(delivery.Body); {
	case body == "reject":
		reject := &pb.Reject{Reason: "it says so itself"}
		return "reject", &pb.Settlement{Verdict: &pb.Settlement_Reject{Reject: reject}}
	case body == "defer" && delivery.Attempt == 1:
		return "defer", &pb.Settlement{Verdict: &pb.Settlement_Defer{Defer: &pb.Defer{DelayMs: 1000}}}
	}
	return "accept", &pb.Settlement{Verdict: &pb.Settlement_Accept{}}
}

func (w *worker) handle(ctx context.Context, delivery *pb.Delivery) {
	ends := time.Now().Add(time.Duration(delivery.LeaseMs) * time.Millisecond)
	w.places <- struct{}{}
	defer func() { <-w.places }()
	knownAs := fmt.Sprintf("%s %s attempt %d", delivery.MessageId, delivery.Body, delivery.Attempt)
	if trace {
		fmt.Printf("took %s for %d ms by %s\n", knownAs, delivery.LeaseMs, delivery.Receipt)
	}
	verdict, settlement := "release", &pb.Settlement{Verdict: &pb.Settlement_Release{}}
	if ctx.Err() == nil {
		verdict, settlement = work(delivery)
	}
	settlement.Receipt = delivery.Receipt
	what := fmt.Sprintf("%s %s by …%s", verdict, knownAs, delivery.Receipt[max(0, len(delivery.Receipt)-12):])
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.running--
	one := &open{settlement: settlement, what: what, due: time.Now(), ends: ends}
	w.unsettled[delivery.Receipt] = one
	if w.stream != nil && (settleAddress == "" || verdict != "accept") {
		one.due = one.due.Add(330 * time.Second) // a stream answers within 300 s, or it ends
		one.say()
		settlements := &pb.Settlements{Settlements: []*pb.Settlement{settlement}}
		w.stream.Send(&pb.SubscribeRequest{Kind: &pb.SubscribeRequest_Settle{Settle: settlements}})
	}
}

// note takes answers. Only what is to be tried again stays.
func (w *worker) note(results []*pb.SettleResult) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, result := range results {
		one, known := w.unsettled[result.Receipt]
		if !known {
			continue
		}
		if result.Status == pb.Status_STATUS_RETRY_LATER {
			one.due = time.Now().Add(time.Second)
			continue
		}
		delete(w.unsettled, result.Receipt)
		fmt.Println(strings.ToLower(strings.TrimPrefix(result.Status.String(), "STATUS_")), one.what, result.Detail)
	}
}

// settleLate settles what no stream is asked about, or has answered. A receipt is good on any host of the fleet.
func (w *worker) settleLate() {
	for ; ; time.Sleep(200 * time.Millisecond) {
		var late []*pb.Settlement
		now := time.Now()
		w.mutex.Lock()
		for receipt, one := range w.unsettled {
			if one.due.After(now) || len(late) == 1000 {
				continue
			}
			if one.ends.Before(now) {
				fmt.Println("unsettled", one.what)
				delete(w.unsettled, receipt)
				continue
			}
			one.due = now.Add(time.Second)
			late = append(late, one.settlement)
			one.say()
		}
		if len(late) > 0 && w.stream != nil && settleAddress != "" {
			elsewhere := &pb.Elsewhere{} // or the host that gave them out would still count on them
			for _, settlement := range late {
				if _, accepts := settlement.Verdict.(*pb.Settlement_Accept); accepts {
					elsewhere.Receipts = append(elsewhere.Receipts, settlement.Receipt)
				}
			}
			w.stream.Send(&pb.SubscribeRequest{Kind: &pb.SubscribeRequest_Elsewhere{Elsewhere: elsewhere}})
		}
		w.mutex.Unlock()
		if len(late) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(authorized(), 15*time.Second)
		response, err := w.settler.Settle(ctx, &pb.SettleRequest{Settlements: late})
		if err != nil {
			fmt.Printf("cannot settle %d now: %v\n", len(late), err)
		}
		w.note(response.GetResults())
		cancel()
	}
}

// finish waits until all is done and answered.
func (w *worker) finish(ended <-chan struct{}) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		w.mutex.Lock()
		done := w.running == 0 && len(w.unsettled) == 0
		w.mutex.Unlock()
		select {
		case <-ended:
			return
		default:
			if done {
				return
			}
		}
	}
}

// subscribe is one stream, until it ends. It says whether it was opened.
func (w *worker) subscribe(ctx context.Context, open *pb.Open) (opened bool) {
	streaming, cancel := context.WithCancel(authorized())
	defer cancel()
	stream, err := w.host.Subscribe(streaming)
	if err == nil {
		err = stream.Send(&pb.SubscribeRequest{Kind: &pb.SubscribeRequest_Open{Open: open}})
	}
	ended, draining := make(chan struct{}), make(chan struct{})
	leave := func() {
		select {
		case <-ctx.Done():
		case <-draining:
		case <-ended:
			return
		}
		w.mutex.Lock()
		stream.Send(&pb.SubscribeRequest{Kind: &pb.SubscribeRequest_Credits{Credits: &pb.Credits{}}}) // nothing more
		w.mutex.Unlock()
		w.finish(ended)
		w.mutex.Lock()
		stream.CloseSend() // what is not settled goes to others
		w.mutex.Unlock()
	}
	for err == nil {
		var response *pb.SubscribeResponse
		if response, err = stream.Recv(); err != nil {
			break
		}
		switch kind := response.Kind.(type) {
		case *pb.SubscribeResponse_Opened:
			fmt.Println("subscribed at", kind.Opened.Host)
			w.mutex.Lock()
			w.stream, opened = stream, true
			w.mutex.Unlock()
			go leave()
		case *pb.SubscribeResponse_Deliveries:
			w.mutex.Lock()
			w.running += len(kind.Deliveries.Deliveries)
			w.mutex.Unlock()
			for _, delivery := range kind.Deliveries.Deliveries {
				go w.handle(ctx, delivery)
			}
		case *pb.SubscribeResponse_Settled:
			w.note(kind.Settled.Results)
		case *pb.SubscribeResponse_Draining:
			close(draining)
		}
	}
	if err != io.EOF {
		fmt.Println("the stream broke:", err)
	}
	close(ended)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.stream = nil
	for _, one := range w.unsettled {
		one.due = time.Time{}
	}
	return opened
}

func authorized() context.Context {
	if token := os.Getenv("TIDEGATE_TOKEN"); token != "" {
		return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	}
	return context.Background()
}

func connect(address string) pb.HandoffClient {
	channel, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A message may be larger than the 4 MB that gRPC takes by default, and a host that is gone has to be noticed.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second}))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return pb.NewHandoffClient(channel)
}

func backoff(failures int) time.Duration {
	wait := min(10*time.Second, 100*time.Millisecond<<failures)
	return wait/2 + rand.N(wait/2)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if given, err := strconv.Atoi(os.Getenv("TIDEGATE_CREDITS")); err == nil && given > 0 {
		credits = given
	}
	address := cmp.Or(os.Getenv("TIDEGATE_ADDRESS"), "127.0.0.1:9641")
	w := &worker{
		host:      connect(address),
		settler:   connect(cmp.Or(settleAddress, address)),
		unsettled: map[string]*open{},
		places:    make(chan struct{}, credits),
	}
	go w.settleLate()
	open := &pb.Open{
		Flow:    cmp.Or(os.Getenv("TIDEGATE_FLOW"), "jobs"),
		Worker:  cmp.Or(os.Getenv("TIDEGATE_WORKER"), "go"),
		Credits: &pb.Credits{Messages: uint64(credits)},
	}
	for failures := 0; ctx.Err() == nil; {
		if failures++; w.subscribe(ctx, open) {
			failures = 1
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff(failures)):
		}
	}
	w.finish(nil)
	fmt.Println("left")
}
