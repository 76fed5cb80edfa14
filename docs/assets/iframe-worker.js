// Browsers start no Worker for a page that is a file, and search is one: its script runs in a hidden frame.
// The name is one that the search of Material for MkDocs asks for.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const base = new URL(url, location);
      const inside = frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: new URL(source, base), onload: resolve, onerror: reject });
          inside.document.body.append(script);
        });
      inside.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const loaded = load(base);
      this.postMessage = async (data) => {
        await loaded;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      };
      this.terminate = () => frame.remove();
    }
  };
}
