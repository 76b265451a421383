// Receives http actions of cronbox: verifies each request, and does the work of each run once.
//
//	go build -o receiver . && CRONBOX_SIGNING_SECRET=whsec_.. ./receiver
//
// RECEIVER_PORT is the port on 127.0.0.1 (8000; 0 takes a free one).
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// tolerance is how far a request's timestamp may be from now: a request that is older may be a replay.
	tolerance = 5 * time.Minute
	// bodyLimit is in bytes; cronbox sends less, because its API takes 256 KiB at most.
	bodyLimit = 1 << 20
)

// call is the body of an action that has none of its own.
type call struct {
	RunID         string          `json:"run_id"`
	WorkflowID    int64           `json:"workflow_id"`
	Trigger       string          `json:"trigger"`
	ScheduledTime *time.Time      `json:"scheduled_time"`
	Attempt       int             `json:"attempt"`
	Inputs        json.RawMessage `json:"inputs"`
}

// work is to be replaced by what the run is for.
func work(c call) error {
	fmt.Printf("run %s of workflow %d for %v\n", c.RunID, c.WorkflowID, c.ScheduledTime)
	return nil
}

// receiver knows the runs whose work is done. A restart loses them: keep the ids in the database in which you work.
type receiver struct {
	key []byte
	// mutex protects the map only, so that no run waits for the work of another one.
	mutex sync.Mutex
	runs  map[string]*run
}

// run is worked on only by the request that has its turn.
type run struct {
	turn   chan struct{}
	isDone bool
}

// find returns the run with this id; its first request creates it.
func (r *receiver) find(id string) *run {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.runs[id] == nil {
		r.runs[id] = &run{turn: make(chan struct{}, 1)}
	}
	return r.runs[id]
}

// workOnce returns whether the run's work was done before. If the work fails, the next attempt does it again.
func (r *receiver) workOnce(ctx context.Context, id string, c call) (bool, error) {
	one := r.find(id)
	// A second attempt at the same moment waits here until the first one has ended.
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if one.isDone {
		return true, nil
	}
	// cronbox has recorded an attempt as timed out that it no longer waits for: its work must not begin now.
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := work(c); err != nil {
		return false, err
	}
	one.isDone = true
	return false, nil
}

// verify returns an error unless cronbox sent this body at most five minutes ago.
func verify(key []byte, header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if id == "" || err != nil {
		return errors.New("webhook-id or webhook-timestamp is missing or malformed")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("webhook-timestamp is more than five minutes from now")
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	mac.Write(body)
	expected := mac.Sum(nil)
	for _, part := range strings.Fields(header.Get("webhook-signature")) {
		encoded, isV1 := strings.CutPrefix(part, "v1,")
		given, err := base64.StdEncoding.DecodeString(encoded)
		if isV1 && err == nil && hmac.Equal(expected, given) {
			return nil
		}
	}
	return errors.New("webhook-signature is not that of the body")
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) (int, any) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, bodyLimit))
	if err != nil {
		return http.StatusRequestEntityTooLarge, map[string]string{"error": err.Error()}
	}
	if err := verify(r.key, request.Header, body, time.Now()); err != nil {
		return http.StatusUnauthorized, map[string]string{"error": err.Error()}
	}
	var c call
	if err := json.Unmarshal(body, &c); err != nil {
		return http.StatusBadRequest, map[string]string{"error": err.Error()}
	}
	id := request.Header.Get("webhook-id")
	repeated, err := r.workOnce(request.Context(), id, c)
	if err != nil {
		// cronbox tries again, up to the workflow's max_attempts.
		return http.StatusInternalServerError, map[string]string{"error": err.Error()}
	}
	return http.StatusOK, map[string]any{"run_id": id, "repeated": repeated}
}

// ServeHTTP answers at any path.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	status, answer := r.receive(w, request)
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Print(err)
	}
}

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("CRONBOX_SIGNING_SECRET"), "whsec_"))
	if err != nil || len(key) == 0 {
		log.Fatal("CRONBOX_SIGNING_SECRET must be the team's secret, whsec_..")
	}
	port := os.Getenv("RECEIVER_PORT")
	if port == "" {
		port = "8000"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("receiver listens on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, &receiver{key: key, runs: map[string]*run{}}))
}
