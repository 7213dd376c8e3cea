/* Browsers start no Worker from the disk. On pages opened there, search runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const load = (address) =>
        new Promise((resolve, reject) => {
          const script = this.inside.document.createElement("script");
          Object.assign(script, { src: address, onload: resolve, onerror: reject });
          this.inside.document.head.append(script);
        });
      this.inside.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(new URL(url, location.href));
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
