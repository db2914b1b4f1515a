/* Lone packets of MQTT clients, without steps of the interpreter: what `Transport.data_received` and `LonePackets.take`
 * do with a chunk that is exactly one publish of QoS 1 like the one before, or one PUBACK of a plain message.
 *
 * Everything is looked up where Python keeps it, and nothing is kept here. Whatever is not as expected goes to
 * `Transport.data_received`, before anything was done. Only the limited API of Python 3.11 is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define NAMES(X) \
    X(_gathered) X(_last_received) X(data_received) X(is_current) X(is_paced) X(lone_failed) X(pass_on_lone)

#define DECLARE(name) static PyObject *name_##name;
NAMES(DECLARE)

#define PUBLISH_QOS_1 0x32
#define CONTINUES 0x80
#define HELD(X) X(transport) X(connection) X(write) X(monotonic) X(share) X(shape) X(direct) X(targets) X(version)
#define FIELD(name) PyObject *name;

/* `octets`: the topic as it comes, with its length, and then the `tail_bytes` of what stands between packet identifier
 * and payload. `transport` is NULL once the client is gone. */
typedef struct {
    PyObject_HEAD
    char is_open;
    Py_ssize_t topic_bytes, tail_bytes, chunk_bytes_max, gathered_max;
    char *octets;
    HELD(FIELD)
} Door;

/* Whether an attribute is `wanted`, True or False; an error is none of both. */
static int is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        PyErr_Clear();
    else
        Py_DECREF(value); /* True and False live for ever */
    return value == wanted;
}

/* Where the packet identifier of the one expected publish lies in a chunk; 0: it is something else. */
static Py_ssize_t place_of_id(const Door *self, const unsigned char *data, Py_ssize_t size)
{
    if (size > self->chunk_bytes_max || size < 2 || data[0] != PUBLISH_QOS_1)
        return 0;
    Py_ssize_t body = 2, length = data[1];
    if (length >= CONTINUES) {
        if (size < 3 || data[2] == 0 || data[2] >= CONTINUES)
            return 0;
        length += ((Py_ssize_t)data[2] - 1) << 7;
        body = 3;
    }
    if (body + length != size || length < self->topic_bytes + 2 + self->tail_bytes)
        return 0;
    Py_ssize_t at = body + self->topic_bytes;
    if (memcmp(data + body, self->octets, (size_t)self->topic_bytes) != 0)
        return 0;
    if (memcmp(data + at + 2, self->octets + self->topic_bytes, (size_t)self->tail_bytes) != 0)
        return 0;
    return data[at] || data[at + 1] ? at : 0;
}

static int pass_on(const Door *self, PyObject *subscriber, PyObject *lone)
{
    PyObject *gathered = PyObject_GetAttr(subscriber, name__gathered);
    if (gathered == NULL)
        return -1;
    Py_ssize_t count = PyList_Size(gathered);
    int failed = count < 0;
    if (count > 0 && count + 1 < self->gathered_max) /* neither the first nor the last of those sent together */
        failed = PyList_Append(gathered, lone);
    else if (!failed) {
        PyObject *done = PyObject_CallMethodObjArgs(subscriber, name_pass_on_lone, lone, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_DECREF(gathered);
    return failed ? -1 : 0;
}

static int pass_on_to_all(const Door *self, PyObject *data, Py_ssize_t at)
{
    PyObject *direct = self->direct, *shape = self->shape;
    if (direct == NULL || shape == NULL) /* the client went meanwhile */
        return 0;
    Py_INCREF(direct);
    Py_INCREF(shape);
    PyObject *place = PyLong_FromSsize_t(at), *payload = PyLong_FromSsize_t(at + 2 + self->tail_bytes);
    PyObject *lone = place == NULL || payload == NULL ? NULL : PyTuple_Pack(4, shape, data, place, payload);
    Py_DECREF(shape);
    Py_XDECREF(place);
    Py_XDECREF(payload);
    int failed = lone == NULL ? -1 : 0;
    for (Py_ssize_t index = 0; !failed && index < PyList_Size(direct); index++) {
        PyObject *subscriber = PyList_GetItem(direct, index);
        Py_INCREF(subscriber);
        failed = pass_on(self, subscriber, lone);
        Py_DECREF(subscriber);
    }
    Py_DECREF(direct);
    Py_XDECREF(lone);
    return failed;
}

static int answer(const Door *self, const char *packet_id)
{
    char puback[4] = {0x40, 2, packet_id[0], packet_id[1]};
    PyObject *bytes = PyBytes_FromStringAndSize(puback, sizeof puback);
    PyObject *write = self->write;
    if (bytes == NULL || write == NULL) { /* NULL: the client went meanwhile */
        Py_XDECREF(bytes);
        return bytes == NULL ? -1 : 0;
    }
    Py_INCREF(write);
    PyObject *done = PyObject_CallFunctionObjArgs(write, bytes, NULL);
    Py_DECREF(write);
    Py_DECREF(bytes);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int note_received(const Door *self)
{
    PyObject *now = PyObject_CallNoArgs(self->monotonic);
    int failed = now == NULL ? -1 : PyObject_SetAttr(self->connection, name__last_received, now);
    Py_XDECREF(now);
    return failed;
}

/* 1: taken; 0: nothing was done; -1: an exception is set. */
static int take(Door *self, PyObject *data)
{
    if (!self->is_open || !PyBytes_CheckExact(data))
        return 0;
    char *octets = PyBytes_AsString(data);
    Py_ssize_t at = place_of_id(self, (unsigned char *)octets, PyBytes_Size(data));
    if (!at || !is(self->targets, name_is_current, Py_True) || !is(self->version, name_is_current, Py_True) ||
        !is(self->share, name_is_paced, Py_False))
        return 0;
    if (note_received(self) < 0 || pass_on_to_all(self, data, at) < 0 || answer(self, octets + at) < 0)
        return -1;
    return 1;
}

/* Tell the transport of the exception that is set. */
static PyObject *failed(PyObject *transport)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    PyObject *told = PyObject_CallMethodObjArgs(transport, name_lone_failed, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return told;
}

static PyObject *door_data_received(PyObject *object, PyObject *data)
{
    Door *self = (Door *)object;
    PyObject *transport = self->transport;
    if (transport == NULL)
        Py_RETURN_NONE;
    Py_INCREF(object); /* what is called may be the end of both */
    Py_INCREF(transport);
    int taken = take(self, data);
    PyObject *found = Py_None;
    if (taken == 1)
        Py_INCREF(found);
    else {
        self->is_open = 0;
        found = taken == 0 ? PyObject_CallMethodObjArgs(transport, name_data_received, data, NULL) : failed(transport);
    }
    Py_DECREF(transport);
    Py_DECREF(object);
    return found;
}

static void close_door(Door *self)
{
    self->is_open = 0;
    PyMem_Free(self->octets);
    self->octets = NULL;
}

static PyObject *door_expect(PyObject *object, PyObject *arguments)
{
    Door *self = (Door *)object;
    const char *topic, *tail;
    Py_ssize_t topic_bytes, tail_bytes;
    PyObject *shape, *direct, *targets, *version, *share;
    if (!PyArg_ParseTuple(arguments, "Oy#y#O!OOO", &shape, &topic, &topic_bytes, &tail, &tail_bytes, &PyList_Type,
                          &direct, &targets, &version, &share))
        return NULL;
    close_door(self);
    if (self->transport == NULL || topic_bytes + tail_bytes > self->chunk_bytes_max)
        Py_RETURN_NONE;
    self->octets = PyMem_Malloc((size_t)(topic_bytes + tail_bytes) + 1);
    if (self->octets == NULL)
        return PyErr_NoMemory();
    memcpy(self->octets, topic, (size_t)topic_bytes);
    memcpy(self->octets + topic_bytes, tail, (size_t)tail_bytes);
    self->topic_bytes = topic_bytes;
    self->tail_bytes = tail_bytes;
#define KEEP(name) \
    { \
        PyObject *before = self->name; \
        Py_INCREF(name); \
        self->name = name; \
        Py_XDECREF(before); \
    }
    KEEP(shape)
    KEEP(direct)
    KEEP(targets)
    KEEP(version)
    KEEP(share)
    self->is_open = self->transport != NULL && self->octets != NULL;
    Py_RETURN_NONE;
}

static int door_traverse(PyObject *object, visitproc visit, void *arg)
{
    Door *self = (Door *)object;
    Py_VISIT(Py_TYPE(object));
#define VISIT(name) Py_VISIT(self->name);
    HELD(VISIT)
    return 0;
}

static int door_clear(PyObject *object)
{
    Door *self = (Door *)object;
    close_door(self);
#define CLEAR(name) Py_CLEAR(self->name);
    HELD(CLEAR)
    return 0;
}

static void door_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    door_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int door_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Door *self = (Door *)object;
    PyObject *transport, *connection, *write, *monotonic;
    Py_ssize_t chunk_bytes_max, gathered_max;
    if (keywords != NULL && PyDict_Size(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "Door takes no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOnn", &transport, &connection, &write, &monotonic, &chunk_bytes_max,
                          &gathered_max))
        return -1;
    door_clear(object);
    self->chunk_bytes_max = chunk_bytes_max;
    self->gathered_max = gathered_max;
    KEEP(transport)
    KEEP(connection)
    KEEP(write)
    KEEP(monotonic)
    return 0;
}

static PyObject *door_dissolve(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    door_clear(object);
    Py_RETURN_NONE;
}

static PyObject *door_close(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    ((Door *)object)->is_open = 0;
    Py_RETURN_NONE;
}

static PyObject *door_is_open(PyObject *object, void *Py_UNUSED(nothing))
{
    return PyBool_FromLong(((Door *)object)->is_open);
}

/* Whatever else a loop wants of a protocol is the transport's. */
static PyObject *door_getattro(PyObject *object, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(object, name);
    PyObject *transport = ((Door *)object)->transport;
    if (found == NULL && transport != NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        Py_INCREF(transport);
        found = PyObject_GetAttr(transport, name);
        Py_DECREF(transport);
    }
    return found;
}

static PyMethodDef door_methods[] = {
    {"data_received", door_data_received, METH_O, "Take bytes from the peer."},
    {"expect", door_expect, METH_VARARGS,
     "expect(shape, topic, tail, direct, targets, version, share): open for publishes like that."},
    {"close", door_close, METH_NOARGS, "Have the next chunk go to the transport."},
    {"dissolve", door_dissolve, METH_NOARGS, "Let go of everything: the client is gone."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef door_properties[] = {
    {"is_open", door_is_open, NULL, "Whether a publish is expected.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot door_slots[] = {
    {Py_tp_init, door_init},         {Py_tp_dealloc, door_dealloc},   {Py_tp_traverse, door_traverse},
    {Py_tp_clear, door_clear},       {Py_tp_getattro, door_getattro}, {Py_tp_methods, door_methods},
    {Py_tp_getset, door_properties}, {0, NULL},
};

static PyType_Spec door_spec = {"broker.mqtt.native._lone.Door", sizeof(Door), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, door_slots};

/* joined(gathered, packet_ids): the publishes, one after the other, with these packet identifiers. */
static PyObject *joined(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *gathered, *ids;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &gathered, &PyList_Type, &ids))
        return NULL;
    Py_ssize_t count = PyList_Size(gathered), total = 0;
    if (PyList_Size(ids) != count) {
        PyErr_SetString(PyExc_ValueError, "as many packet identifiers as publishes are needed");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *wire = PyTuple_GetItem(PyList_GetItem(gathered, i), 1);
        Py_ssize_t size = wire == NULL ? -1 : PyBytes_Size(wire);
        if (size < 0)
            return NULL;
        total += size;
    }
    PyObject *answer = PyBytes_FromStringAndSize(NULL, total);
    if (answer == NULL)
        return NULL;
    char *to = PyBytes_AsString(answer);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *lone = PyList_GetItem(gathered, i);
        char *wire;
        Py_ssize_t size, at = PyLong_AsSsize_t(PyTuple_GetItem(lone, 2));
        long id = PyLong_AsLong(PyList_GetItem(ids, i));
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(lone, 1), &wire, &size) < 0 || PyErr_Occurred()) {
            Py_DECREF(answer);
            return NULL;
        }
        if (at < 0 || at + 2 > size || size > total) {
            Py_DECREF(answer);
            PyErr_SetString(PyExc_ValueError, "no room for a packet identifier");
            return NULL;
        }
        memcpy(to, wire, (size_t)size);
        to[at] = (char)(id >> 8);
        to[at + 1] = (char)id;
        to += size;
        total -= size;
    }
    return answer;
}

static PyMethodDef methods[] = {
    {"joined", joined, METH_VARARGS, "joined(gathered, packet_ids): join lone publishes with these identifiers."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_lone", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lone(void)
{
#define INTERN(name) \
    if ((name_##name = PyUnicode_InternFromString(#name)) == NULL) \
        return NULL;
    NAMES(INTERN)
    PyObject *module = PyModule_Create(&definition);
    PyObject *door = module == NULL ? NULL : PyType_FromSpec(&door_spec);
    if (door == NULL || PyModule_AddObjectRef(module, "Door", door) < 0) {
        Py_XDECREF(door);
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(door);
    return module;
}
