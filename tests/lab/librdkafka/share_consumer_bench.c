/*
 * Consumes a number of records as a member of a share group with librdkafka, acknowledges each explicitly, and says on
 * standard output when it began, had its first record, and had its last one acknowledged.
 *
 * Arguments: bootstrap servers, topic, group, number of records, and settings as key=value.
 *
 * The library comes out of the Python package confluent-kafka, which has no header: what is used of it is declared here as
 * rdkafka.h of 2.15.0 declares it.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_messages_s rd_kafka_messages_t;
typedef struct rd_kafka_share_s rd_kafka_share_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

/* Of its fields only the first is looked at. */
typedef struct {
    int err;
} rd_kafka_message_t;

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
const char *rd_kafka_err2str(int);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
rd_kafka_share_t *rd_kafka_share_consumer_new(rd_kafka_conf_t *, char *, size_t);
int rd_kafka_share_subscribe(rd_kafka_share_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_error_t *rd_kafka_share_poll(rd_kafka_share_t *, int, rd_kafka_messages_t **);
int rd_kafka_share_acknowledge(rd_kafka_share_t *, const rd_kafka_message_t *);
rd_kafka_error_t *rd_kafka_share_commit_sync(rd_kafka_share_t *, int, rd_kafka_topic_partition_list_t **);
rd_kafka_error_t *rd_kafka_share_consumer_close(rd_kafka_share_t *);
void rd_kafka_share_destroy(rd_kafka_share_t *);
size_t rd_kafka_messages_count(const rd_kafka_messages_t *);
rd_kafka_message_t *rd_kafka_messages_get(const rd_kafka_messages_t *, size_t);
void rd_kafka_messages_destroy(rd_kafka_messages_t *);

static const int POLL_MS = 500;
static const int COMMIT_MS = 30000;

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, int code) {
    if (code != 0) fail(what, rd_kafka_err2str(code));
}

static void check_error(const char *what, const rd_kafka_error_t *error) {
    if (error != NULL) fail(what, rd_kafka_error_string(error));
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char reason[512];
    if (rd_kafka_conf_set(conf, key, value, reason, sizeof reason) != 0) fail(key, reason);
}

int main(int count, char **arguments) {
    if (count < 5) fail("usage", "BOOTSTRAP TOPIC GROUP RECORDS [KEY=VALUE]..");
    const size_t records = strtoull(arguments[4], NULL, 10);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", arguments[1]);
    set(conf, "group.id", arguments[3]);
    set(conf, "share.acknowledgement.mode", "explicit");
    for (int at = 5; at < count; at++) {
        char *equals = strchr(arguments[at], '=');
        if (equals == NULL) fail(arguments[at], "is not KEY=VALUE");
        *equals = '\0';
        set(conf, arguments[at], equals + 1);
    }
    say("began");
    char reason[512];
    rd_kafka_share_t *consumer = rd_kafka_share_consumer_new(conf, reason, sizeof reason);
    if (consumer == NULL) fail("creating the consumer", reason);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, arguments[2], -1);
    check("subscribing", rd_kafka_share_subscribe(consumer, topics));
    rd_kafka_topic_partition_list_destroy(topics);

    size_t received = 0;
    while (received < records) {
        rd_kafka_messages_t *batch = NULL;
        check_error("polling", rd_kafka_share_poll(consumer, POLL_MS, &batch));
        const size_t length = rd_kafka_messages_count(batch);
        if (received == 0 && length > 0) say("first");
        for (size_t at = 0; at < length; at++) {
            const rd_kafka_message_t *message = rd_kafka_messages_get(batch, at);
            check("a record", message->err);
            check("acknowledging", rd_kafka_share_acknowledge(consumer, message));
        }
        rd_kafka_messages_destroy(batch);
        received += length;
    }
    rd_kafka_topic_partition_list_t *results = NULL;
    check_error("committing", rd_kafka_share_commit_sync(consumer, COMMIT_MS, &results));
    if (results != NULL) rd_kafka_topic_partition_list_destroy(results);
    say("done");
    check_error("closing", rd_kafka_share_consumer_close(consumer));
    rd_kafka_share_destroy(consumer);
    return 0;
}
