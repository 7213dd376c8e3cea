/* Browsers start no Worker from the disk. On pages opened there, search runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      const loaded = new Promise((resolve) => (frame.onload = resolve));
      document.body.append(frame);
      this.frame = frame;
      this.ready = loaded.then(() => this.start(new URL(url, location.href)));
    }

    start(url) {
      const inside = this.frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: address, onload: resolve, onerror: reject });
          inside.document.head.append(script);
        });
      inside.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      return load(url);
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(message));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
