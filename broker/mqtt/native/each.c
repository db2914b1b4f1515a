/* Publishes of one client, each to another topic, without steps of the interpreter: what `PublishDecoder.take_each`,
 * `TopicTarget.publish` and `Outbound.pass_on` do with one that is passed on as it is.
 *
 * Everything is looked up where Python keeps it, and nothing is kept here. A publish that is not as expected is left
 * with all behind it, before anything was done with it; a subscriber that is not has it by his `pass_on`. Only the
 * limited API of Python 3.11 is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define NAMES(X) \
    X(_connection) X(_flush_wanted) X(_gathered) X(_next) X(_transport) X(_unchecked_bytes) X(_waiting) \
    X(client_maximum_packet_size) X(closed) X(context) X(direct) X(door) X(in_use) X(is_paced) X(maximum) X(output) X(pass_on) \
    X(share) X(want_flush) X(window)

#define DECLARE(name) static PyObject *name_##name;
NAMES(DECLARE)

#define PUBLISH_QOS_1 0x32
#define CONTINUES 0x80
#define PUBLISH_BYTES_MIN 7
#define PACKET_ID_MAX 0xFFFF

/* What `pass_on_each` was called with. `count_max`: a publish to several subscribers counts for each of them. */
typedef struct {
    PyObject *data, *known, *connection, *target_type, *outbound_type, *run_of, *flushes;
    const unsigned char *octets;
    Py_ssize_t end, count_max, packet_bytes_max, unchecked_bytes_max;
} Chunk;

/* A publish in the chunk, from `start` to `stop`; `direct` are its subscribers. */
typedef struct {
    PyObject *shape, *direct;
    Py_ssize_t start, stop, packet_id, payload;
} Publish;

/* Whether an attribute is `wanted`, True, False or None; an error is none of both. */
static int is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        PyErr_Clear();
    else
        Py_DECREF(value); /* these live for ever */
    return value == wanted;
}

/* Whether an attribute is empty; an error is not. */
static int is_empty(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t size = value == NULL ? -1 : PyObject_Size(value);
    Py_XDECREF(value);
    if (size < 0)
        PyErr_Clear();
    return size == 0;
}

/* An attribute that is a number from 0; -1: it is not. */
static Py_ssize_t number(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t found = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    if (found < 0)
        PyErr_Clear();
    return found;
}

static int set_number(PyObject *object, PyObject *name, Py_ssize_t value)
{
    PyObject *as_object = PyLong_FromSsize_t(value);
    int failed = as_object == NULL ? -1 : PyObject_SetAttr(object, name, as_object);
    Py_XDECREF(as_object);
    return failed;
}

static PyObject *call(PyObject *object, PyObject *name, PyObject *argument)
{
    return PyObject_CallMethodObjArgs(object, name, argument, NULL);
}

/* Call what gives nothing. */
static int act(PyObject *object, PyObject *name, PyObject *argument)
{
    PyObject *done = call(object, name, argument);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Find the shape of the publish at `start`, and its places. 1: that is one to a known topic; 0: it is not; -1: an
 * exception is set. */
static int find(const Chunk *chunk, Py_ssize_t start, Publish *publish)
{
    const unsigned char *octets = chunk->octets;
    if (chunk->end - start < PUBLISH_BYTES_MIN || octets[start] != PUBLISH_QOS_1)
        return 0;
    Py_ssize_t body = start + 2, size = octets[start + 1];
    if (size >= CONTINUES) {
        Py_ssize_t high = octets[body++];
        if (high == 0 || high >= CONTINUES)
            return 0;
        size += (high - 1) << 7;
    }
    Py_ssize_t stop = body + size, at = body + 2 + (octets[body] << 8 | octets[body + 1]);
    if (stop > chunk->end || stop - start > chunk->packet_bytes_max || at + 2 > stop || !(octets[at] || octets[at + 1]))
        return 0;
    PyObject *topic = PyBytes_FromStringAndSize((const char *)octets + body, at - body);
    PyObject *found = topic == NULL ? NULL : PyDict_GetItemWithError(chunk->known, topic);
    Py_XDECREF(topic);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *shape = PyTuple_GetItem(found, 0), *tail = PyTuple_GetItem(found, 1);
    char *tail_octets;
    Py_ssize_t tail_bytes;
    if (shape == NULL || tail == NULL || PyBytes_AsStringAndSize(tail, &tail_octets, &tail_bytes) < 0)
        return -1;
    if (at + 2 + tail_bytes > stop || memcmp(octets + at + 2, tail_octets, (size_t)tail_bytes) != 0)
        return 0;
    Py_INCREF(shape);
    publish->shape = shape;
    publish->start = start;
    publish->stop = stop;
    publish->packet_id = at;
    publish->payload = at + 2 + tail_bytes;
    return 1;
}

/* Find its subscribers, if all there is to do is to pass it on to them; results as those of `find`. */
static int find_direct(const Chunk *chunk, Publish *publish)
{
    PyObject *target = PyObject_GetAttr(publish->shape, name_context);
    if (target == NULL)
        return -1;
    PyObject *direct = Py_None;
    if ((PyObject *)Py_TYPE(target) == chunk->target_type)
        direct = call(target, name_direct, NULL);
    else
        Py_INCREF(direct);
    Py_DECREF(target);
    if (direct == NULL)
        return -1;
    if (!PyList_Check(direct)) {
        Py_DECREF(direct);
        return 0;
    }
    publish->direct = direct;
    return 1;
}

/* What `OutboundWindow.take_free` does when the next identifier is free; 0: it is for that. */
static Py_ssize_t take_free(PyObject *window)
{
    Py_ssize_t next = number(window, name__next), maximum = number(window, name_maximum), taken = 0;
    PyObject *in_use = PyObject_GetAttr(window, name_in_use), *packet_id = PyLong_FromSsize_t(next);
    if (next > 0 && in_use != NULL && packet_id != NULL && PySet_Size(in_use) < maximum &&
        PySet_Contains(in_use, packet_id) == 0 && PySet_Add(in_use, packet_id) == 0 &&
        set_number(window, name__next, next < PACKET_ID_MAX ? next + 1 : 1) == 0)
        taken = next;
    Py_XDECREF(in_use);
    Py_XDECREF(packet_id);
    return taken;
}

static int write_packet(PyObject *connection, PyObject *packet)
{
    PyObject *output = PyObject_GetAttr(connection, name_output);
    int failed = output == NULL ? -1 : PyList_Append(output, packet);
    Py_XDECREF(output);
    return failed;
}

/* As `Transport.want_flush`, but that the hub is told of all of them in the end. */
static int want_flush(const Chunk *chunk, PyObject *transport)
{
    if (is(transport, name__flush_wanted, Py_True))
        return 0;
    if (!is(transport, name_door, Py_None))
        return act(transport, name_want_flush, NULL);
    if (PyList_Append(chunk->flushes, transport) < 0)
        return -1;
    return PyObject_SetAttr(transport, name__flush_wanted, Py_True);
}

/* Whether nothing keeps a plain message of `size` from the client at once. */
static int is_plain(PyObject *outbound, PyObject *connection, PyObject *transport, Py_ssize_t size)
{
    if (!is_empty(outbound, name__gathered) || !is(outbound, name__waiting, Py_None) ||
        !is(connection, name_closed, Py_False) ||
        number(connection, name_client_maximum_packet_size) < size)
        return 0;
    PyObject *share = PyObject_GetAttr(transport, name_share);
    if (share == NULL) {
        PyErr_Clear();
        return 0;
    }
    int plain = is(share, name_is_paced, Py_False);
    Py_DECREF(share);
    return plain;
}

/* What `Outbound.pass_on` does with one publish that nothing keeps; results as those of `find`. */
static int pass_on_plain(const Chunk *chunk, PyObject *outbound, const Publish *publish)
{
    Py_ssize_t size = publish->stop - publish->start, packet_id = 0;
    Py_ssize_t unchecked_bytes = number(outbound, name__unchecked_bytes);
    if (unchecked_bytes < 0 || unchecked_bytes + size > chunk->unchecked_bytes_max)
        return 0;
    PyObject *connection = PyObject_GetAttr(outbound, name__connection);
    PyObject *transport = PyObject_GetAttr(outbound, name__transport);
    PyObject *window = PyObject_GetAttr(outbound, name_window);
    int done = 0;
    if (connection == NULL || transport == NULL || window == NULL)
        PyErr_Clear();
    else if (is_plain(outbound, connection, transport, size) && (packet_id = take_free(window)) != 0) {
        PyObject *packet = PyBytes_FromStringAndSize((const char *)chunk->octets + publish->start, size);
        done = -1;
        if (packet != NULL) {
            char *at = PyBytes_AsString(packet) + (publish->packet_id - publish->start);
            at[0] = (char)(packet_id >> 8);
            at[1] = (char)packet_id;
            if (write_packet(connection, packet) == 0 &&
                set_number(outbound, name__unchecked_bytes, unchecked_bytes + size) == 0 &&
                want_flush(chunk, transport) == 0)
                done = 1;
            Py_DECREF(packet);
        }
    } else
        done = PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(connection);
    Py_XDECREF(transport);
    Py_XDECREF(window);
    return done;
}

/* The publish as a run, for `pass_on`. */
static PyObject *run_of(const Chunk *chunk, const Publish *publish)
{
    Py_ssize_t start = publish->start;
    PyObject *lone = Py_BuildValue("(Oy#nn)", publish->shape, chunk->octets + start, publish->stop - start,
                                   publish->packet_id - start, publish->payload - start);
    PyObject *run = lone == NULL ? NULL : PyObject_CallFunctionObjArgs(chunk->run_of, lone, NULL);
    Py_XDECREF(lone);
    return run;
}

static int answer(const Chunk *chunk, const Publish *publish)
{
    if (!is(chunk->connection, name_closed, Py_False))
        return 0;
    const unsigned char *id = chunk->octets + publish->packet_id;
    char octets[4] = {0x40, 2, (char)id[0], (char)id[1]};
    PyObject *puback = PyBytes_FromStringAndSize(octets, sizeof octets);
    int failed = puback == NULL ? -1 : write_packet(chunk->connection, puback);
    Py_XDECREF(puback);
    return failed;
}

static int pass_on_to_all(const Chunk *chunk, const Publish *publish)
{
    PyObject *run = NULL;
    int failed = 0;
    for (Py_ssize_t index = 0; !failed && index < PyList_Size(publish->direct); index++) {
        PyObject *subscriber = PyList_GetItem(publish->direct, index);
        Py_INCREF(subscriber);
        int done = 0;
        if ((PyObject *)Py_TYPE(subscriber) == chunk->outbound_type)
            done = pass_on_plain(chunk, subscriber, publish);
        if (done == 0) {
            if (run == NULL)
                run = run_of(chunk, publish);
            failed = run == NULL ? -1 : act(subscriber, name_pass_on, run);
        } else if (done < 0)
            failed = -1;
        Py_DECREF(subscriber);
    }
    Py_XDECREF(run);
    return failed ? -1 : answer(chunk, publish);
}

/* Pass publishes on, as far as each is one to another topic than the next; how many, where they stop, or -1. */
static Py_ssize_t pass_on(const Chunk *chunk, Py_ssize_t *stop)
{
    Publish publish = {0}, next = {0};
    Py_ssize_t count = 0, left = chunk->count_max;
    int found = left > 0 ? find(chunk, 0, &publish) : 0;
    *stop = 0;
    while (found == 1) {
        next.shape = NULL;
        int found_next = find(chunk, publish.stop, &next);
        found = found_next < 0 ? -1 : next.shape == publish.shape ? 0 : find_direct(chunk, &publish);
        if (found == 1) {
            Py_ssize_t subscribers = PyList_Size(publish.direct);
            left -= subscribers > 1 ? subscribers : 1;
            found = pass_on_to_all(chunk, &publish) < 0 ? -1 : left > 0 ? found_next : 0;
            Py_DECREF(publish.direct);
            *stop = publish.stop;
            count++;
        }
        Py_DECREF(publish.shape);
        publish = next;
    }
    Py_XDECREF(publish.shape);
    return found < 0 ? -1 : count;
}

static PyObject *pass_on_each(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Chunk chunk;
    Py_ssize_t stop;
    if (!PyArg_ParseTuple(arguments, "O!O!OOOOO!nnn", &PyBytes_Type, &chunk.data, &PyDict_Type, &chunk.known,
                          &chunk.connection, &chunk.target_type, &chunk.outbound_type, &chunk.run_of, &PyList_Type,
                          &chunk.flushes, &chunk.count_max, &chunk.packet_bytes_max, &chunk.unchecked_bytes_max))
        return NULL;
    chunk.octets = (const unsigned char *)PyBytes_AsString(chunk.data);
    chunk.end = PyBytes_Size(chunk.data);
    Py_ssize_t count = pass_on(&chunk, &stop);
    return count < 0 ? NULL : Py_BuildValue("nn", count, stop);
}

static PyMethodDef methods[] = {
    {"pass_on_each", pass_on_each, METH_VARARGS, "Pass on and answer the publishes that data begins with."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_each", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__each(void)
{
#define INTERN(name) \
    if ((name_##name = PyUnicode_InternFromString(#name)) == NULL) \
        return NULL;
    NAMES(INTERN)
    return PyModule_Create(&definition);
}
