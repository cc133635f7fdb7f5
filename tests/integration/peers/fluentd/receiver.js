// Takes entries of the forward protocol on loopback and prints each as a line of JSON. Argument: the port.
const { FluentServer } = require("@fluent-org/logger");

const server = new FluentServer({ listenOptions: { host: "127.0.0.1", port: Number(process.argv[2]) } });
server.on("entry", (tag, time, record) => console.log(JSON.stringify({ tag, record })));
server.listen().then(() => console.log(JSON.stringify({ ready: server.port })));
